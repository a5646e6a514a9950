#include "fa/pair_mask.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "core/run/guarded_call.h"
#include "core/saturating.h"
#include "fa/block_mask.h"
#include "fa/half.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/pair_contents.h"
#include "ops/bind/pair_rows.h"

namespace fa {
namespace {

using ops::Arg;
using ops::At;
using ops::LowBits;
using ops::PairSourceView;
using ops::PairTileLayout;
using tiling::Interval;

template <typename T>
float NumberAt(const std::byte* from, DType dtype) {
  T bits;
  std::memcpy(&bits, from, sizeof bits);
  if constexpr (std::is_same_v<T, float>) {
    return bits;
  } else {
    return dtype == DType::kBF16 ? F32FromBf16(bits) : F32FromF16(bits);
  }
}

/// Returns a function that makes a word of dropped pairs from numbers. A number drops its pair if it is at most half
/// the lowest number of the type. The function sets `adds` if a kept number is not 0.
template <typename T>
auto DroppedByNumbers(DType dtype, std::atomic<bool>& adds) {
  constexpr float kMostOfF16 = 65504;
  const float most = dtype == DType::kF32    ? std::numeric_limits<float>::max()
                     : dtype == DType::kBF16 ? F32FromBf16(0x7F7F)
                                             : kMostOfF16;
  return [dtype, limit = -most / 2, &adds](const std::byte* from, int64_t apart, int64_t count) {
    uint8_t dropped[PairTileLayout::kWordBits];
    uint8_t added = 0;
    for (int64_t j = 0; j < count; ++j) {
      const float number = NumberAt<T>(from + j * apart, dtype);
      dropped[j] = number <= limit ? 1 : 0;
      added |= number <= limit || number == 0 ? 0 : 1;
    }
    if (added != 0) adds.store(true, std::memory_order_relaxed);
    return ops::WordOfBytes(dropped, count);
  };
}

/// Finds the first wrong entry of the lists, which the error names. Threads may add wrong entries in any order.
class FirstWrongEntry {
 public:
  void Add(int64_t entry) {
    int64_t least = entry_.load(std::memory_order_relaxed);
    while (entry < least && !entry_.compare_exchange_weak(least, entry, std::memory_order_relaxed)) continue;
  }
  [[nodiscard]] int64_t entry() const { return entry_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool any() const { return entry() != kNone; }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> entry_{kNone};
};

/// Clears the bits of these keys. The first bit belongs to key 0.
void Keep(uint64_t* words, Interval keys) {
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t bit = key % PairTileLayout::kWordBits,
                  count = std::min(PairTileLayout::kWordBits - bit, keys.end - key);
    words[key / PairTileLayout::kWordBits] &= ~(LowBits(count) << bit);
    key += count;
  }
}

/// Keeps those keys of a block that lie among `keys`. The bits of `keys` begin at `words`.
void KeepBlock(uint64_t* words, const PairLists& lists, int64_t block, Interval keys) {
  const int64_t first = block * lists.block_keys, end = std::min(first + lists.block_keys, lists.keys);
  Keep(words, {std::max(first, keys.begin) - keys.begin, std::min(end, keys.end) - keys.begin});
}

/// Returns PairTiles::row_shift: 2^row_shift is the largest power of 2 that divides both a block's rows and a tile's
/// rows.
int RowShiftOf(const PairLists& lists) {
  return std::countr_zero(static_cast<uint64_t>(lists.block_rows | PairTileLayout::kTile));
}

/// Writes the bits of some rows. All bits of a row are set, then keep(list, words) clears bits. `keep` is called once
/// for all rows of a list.
template <typename KeepOfList>
void WriteLists(const PairLists& lists, Interval rows, Interval keys, uint64_t* words, int64_t stride,
                const KeepOfList& keep) {
  const int64_t step = int64_t{1} << RowShiftOf(lists), count = core::CeilDiv(keys.size(), PairTileLayout::kWordBits);
  for (int64_t row = rows.begin, before = -1; row < rows.end; row += step, words += stride) {
    const int64_t list = row / lists.block_rows;
    if (list == before) {
      std::copy_n(words - stride, count, words);
      continue;
    }
    std::fill_n(words, count, ~uint64_t{0});
    words[count - 1] = LowBits(keys.size() - (count - 1) * PairTileLayout::kWordBits);
    keep(list, words);
    before = list;
  }
}

/// A source that reads lists of keys or of blocks of keys.
class ListSource {
 public:
  ListSource(const PairSourceView& view, const PairLists& lists, FirstWrongEntry& wrong)
      : view_(view), lists_(lists), wrong_(wrong) {}

  void operator()(int64_t batch, int64_t head, Interval rows, Interval keys, uint64_t* words, int64_t stride) const {
    WriteLists(lists_, rows, keys, words, stride, [&](int64_t list, uint64_t* bits) {
      for (int64_t i = 0; i < view_.shape[3]; ++i) {
        const int64_t entry = EntryAt(batch, head, list, i);
        if (entry >= core::CeilDiv(lists_.keys, lists_.block_keys)) {
          wrong_.Add(((batch * view_.shape[1] + head) * view_.shape[2] + list) * view_.shape[3] + i);
        } else if (entry >= 0) {
          KeepBlock(bits, lists_, entry, keys);
        }
      }
    });
  }

  [[nodiscard]] int64_t EntryAt(int64_t batch, int64_t head, int64_t list, int64_t i) const {
    const auto element = static_cast<int64_t>(SizeOf(view_.dtype));
    const std::byte* from = view_.Row(batch, head, list) + i * view_.stride[3] * element;
    int64_t entry = 0;
    if (view_.dtype == DType::kI64) {
      std::memcpy(&entry, from, sizeof entry);
      return entry;
    }
    int32_t narrow;
    std::memcpy(&narrow, from, sizeof narrow);
    return narrow;
  }

 private:
  const PairSourceView& view_;
  const PairLists& lists_;
  FirstWrongEntry& wrong_;
};

/// Checks the sizes of a mask that is made from lists or blocks.
Status CheckListSizes(const PairSourceView& view, const PairLists& lists) {
  const std::pair<const char*, int64_t> sizes[] = {{"rows", lists.rows}, {"keys", lists.keys}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) return Status::InvalidArgument(Arg(name).Is(std::to_string(size)) + ", want >= 0");
  }
  const std::pair<const char*, int64_t> blocks[] = {{"block_rows", lists.block_rows}, {"block_keys", lists.block_keys}};
  for (const auto& [name, size] : blocks) {
    if (size < 1) return Status::InvalidArgument(Arg(name).Is(std::to_string(size)) + ", want >= 1");
  }
  if (core::SaturatedProduct(view.shape[0], view.shape[1], lists.rows, lists.keys) <= ops::kMostPairs) {
    return Status::Ok();
  }
  return Status::InvalidArgument(Arg("keys").Is(std::to_string(lists.keys)) + ", want fewer pairs");
}

Status CheckLists(const PairSourceView& view, const PairLists& lists) {
  FA_RETURN_IF_ERROR(CheckListSizes(view, lists));
  const int64_t want = core::CeilDiv(lists.rows, lists.block_rows);
  if (view.shape[2] == want) return Status::Ok();
  return Status::InvalidArgument(Arg("indices", ".shape").Is(ops::Text(view.shape)) + ", want " + std::to_string(want) +
                                 " lists (" + Arg("rows") + ")");
}

Status WrongEntry(const ListSource& source, const PairSourceView& view, const PairLists& lists, int64_t entry) {
  int64_t place[4];
  for (int i = 3; i >= 0; --i) {
    place[i] = entry % view.shape[i];
    entry /= view.shape[i];
  }
  const int64_t got = source.EntryAt(place[0], place[1], place[2], place[3]);
  return Status::InvalidArgument(
      Arg("indices", {}, At(place[0]) + At(place[1]) + At(place[2]) + At(place[3])).Is(std::to_string(got)) +
      ", want < " + std::to_string(core::CeilDiv(lists.keys, lists.block_keys)) + " (" + Arg("keys") + ")");
}

/// Sets the bits of the pairs that a mask drops. A dimension of size 1 stands for all batch elements, heads or rows.
void AddDropped(const PairMask::Contents& contents, int64_t batch, int64_t head, Interval rows, Interval keys,
                uint64_t* words, int64_t stride) {
  const Dims& shape = contents.shape;
  const bool one_row = shape[2] == 1;
  const ops::PairTiles tiles = ops::TilesOf(contents, contents.layout);
  const int64_t tile_row = ops::NumberOfTileRow(contents, shape[0] == 1 ? 0 : batch, shape[1] == 1 ? 0 : head,
                                                one_row ? 0 : rows.begin / PairTileLayout::kTile);
  for (int64_t key = keys.begin; key < keys.end; key += PairTileLayout::kWordBits, ++words) {
    const ops::PairTiles::Column column = tiles.Words(tile_row, key / PairTileLayout::kWordBits);
    const uint64_t inside = LowBits(std::min(PairTileLayout::kWordBits, keys.end - key));
    for (int64_t r = 0; r < rows.size(); ++r)
      words[r * stride] |= column.words[(one_row ? 0 : r >> contents.row_shift) * column.stride] & inside;
  }
}

/// Makes a mask from a source of all its pairs.
Result<PairMask> MakeWhole(const Dims& shape, ops::PairSource source, Context* context, int row_shift = 0) {
  auto contents = ops::MakeContents(shape, row_shift);
  const ops::PairRegion all{.batches = shape[0], .heads = shape[1], .tile_rows = contents->layout.tile_rows()};
  FA_RETURN_IF_ERROR(ops::MakeTiles(*contents, all, source, context));
  ops::Complete(*contents);
  return PairMask(std::move(contents));
}

}  // namespace

Result<PairMask> PairMask::FromBytes(const TensorView& mask, bool drops, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    const Result<PairSourceView> view = ops::BindPairBytes(mask);
    if (!view.ok()) return view.status();
    ops::PairRowSource source(*view, ops::DroppedByBytes{drops});
    return MakeWhole(view->shape, ops::PairSource(source), context);
  });
}

Result<PairMask> PairMask::FromAdditive(const TensorView& scores, bool* adds, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    const Result<PairSourceView> view =
        ops::BindPairSource("scores", scores, {DType::kF32, DType::kBF16, DType::kF16}, "f32, bf16 or f16", "Sq,Sk");
    if (!view.ok()) return view.status();
    std::atomic<bool> any = false;
    ops::PairRowSource floats(*view, DroppedByNumbers<float>(view->dtype, any));
    ops::PairRowSource halves(*view, DroppedByNumbers<uint16_t>(view->dtype, any));
    auto mask =
        MakeWhole(view->shape, view->dtype == DType::kF32 ? ops::PairSource(floats) : ops::PairSource(halves), context);
    if (mask.ok() && adds != nullptr) *adds = any.load();
    return mask;
  });
}

Result<PairMask> PairMask::FromIndices(const TensorView& indices, const PairLists& lists, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    const Result<PairSourceView> view =
        ops::BindPairSource("indices", indices, {DType::kI32, DType::kI64}, "i32 or i64", "lists,K");
    if (!view.ok()) return view.status();
    FA_RETURN_IF_ERROR(CheckLists(*view, lists));
    FirstWrongEntry wrong;
    ListSource source(*view, lists, wrong);
    auto mask = MakeWhole({view->shape[0], view->shape[1], lists.rows, lists.keys}, ops::PairSource(source), context,
                          RowShiftOf(lists));
    if (wrong.any()) return WrongEntry(source, *view, lists, wrong.entry());
    return mask;
  });
}

Result<PairMask> PairMaskFromBlocks(const TensorView& blocks, const PairLists& sizes, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    const Result<PairSourceView> view = ops::BindPairSource("blocks", blocks, {DType::kU8, DType::kBool, DType::kI8},
                                                            "u8, bool or i8", "row blocks,key blocks");
    if (!view.ok()) return view.status();
    FA_RETURN_IF_ERROR(CheckListSizes(*view, sizes));
    const int rank = blocks.shape.rank();
    const int64_t row_blocks = core::CeilDiv(sizes.rows, sizes.block_rows),
                  key_blocks = core::CeilDiv(sizes.keys, sizes.block_keys);
    FA_RETURN_IF_ERROR(ops::CheckSize("blocks", blocks, rank - 2, row_blocks, {"rows", ops::SizeSource::kArgument}));
    FA_RETURN_IF_ERROR(ops::CheckSize("blocks", blocks, rank - 1, key_blocks, {"keys", ops::SizeSource::kArgument}));
    auto source = [&](int64_t batch, int64_t head, Interval rows, Interval keys, uint64_t* words, int64_t stride) {
      WriteLists(sizes, rows, keys, words, stride, [&](int64_t list, uint64_t* bits) {
        const std::byte* row = view->Row(batch, head, list);
        for (int64_t block = keys.begin / sizes.block_keys; block * sizes.block_keys < keys.end; ++block) {
          if (row[block * view->stride[3]] != std::byte{0}) KeepBlock(bits, sizes, block, keys);
        }
      });
    };
    return MakeWhole({view->shape[0], view->shape[1], sizes.rows, sizes.keys}, ops::PairSource(source), context,
                     RowShiftOf(sizes));
  });
}

Result<PairMask> PairMask::FromBits(const TensorView& words, int64_t keys, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    const Result<PairSourceView> view = ops::BindPairSource("words", words, {DType::kI64}, "i64", "Sq,words");
    if (!view.ok()) return view.status();
    if (keys < 0) return Status::InvalidArgument(Arg("keys").Is(std::to_string(keys)) + ", want >= 0");
    if (const int64_t want = core::CeilDiv(keys, PairTileLayout::kWordBits); view->shape[3] != want) {
      return ops::WrongSize("words", words.shape.rank() - 1, view->shape[3], want,
                            {"keys", ops::SizeSource::kArgument});
    }
    auto source = [&](int64_t batch, int64_t head, Interval rows, Interval of, uint64_t* to, int64_t stride) {
      const int64_t apart = view->stride[3] * static_cast<int64_t>(sizeof(uint64_t));
      for (int64_t row = rows.begin; row < rows.end; ++row, to += stride) {
        const std::byte* from = view->Row(batch, head, row) + of.begin / PairTileLayout::kWordBits * apart;
        for (int64_t key = of.begin; key < of.end; key += PairTileLayout::kWordBits, from += apart) {
          uint64_t word;
          std::memcpy(&word, from, sizeof word);
          to[(key - of.begin) / PairTileLayout::kWordBits] =
              ~word & LowBits(std::min(PairTileLayout::kWordBits, of.end - key));
        }
      }
    };
    return MakeWhole({view->shape[0], view->shape[1], view->shape[2], keys}, ops::PairSource(source), context);
  });
}

Result<PairMask> PairMask::Intersection(const PairMask& a, const PairMask& b, Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMask> {
    Dims shape = a.shape();
    if (shape.empty() || b.shape().empty())
      return Status::InvalidArgument(Arg(shape.empty() ? "a" : "b").Says("has no mask"));
    for (int i = 0; i < 4; ++i) {
      const int64_t other = b.shape()[i];
      if (i < 3 && shape[i] == 1) shape[i] = other;
      if (other == shape[i] || (i < 3 && other == 1)) continue;
      return Status::InvalidArgument(Arg("b", ".shape").Is(ops::Text(b.shape())) + ", want " + ops::Text(a.shape()) +
                                     " (" + Arg("a", ".shape") + ")");
    }
    auto source = [&](int64_t batch, int64_t head, Interval rows, Interval keys, uint64_t* words, int64_t stride) {
      std::fill_n(words, rows.size() * stride, uint64_t{0});
      for (const PairMask* mask : {&a, &b}) AddDropped(*mask->contents(), batch, head, rows, keys, words, stride);
    };
    return MakeWhole(shape, ops::PairSource(source), context);
  });
}

Dims PairMask::shape() const { return contents_ == nullptr ? Dims() : contents_->shape; }

int64_t PairMask::bytes() const { return contents_ == nullptr ? 0 : contents_->bytes; }

PairTileCounts PairMask::tiles() const { return contents_ == nullptr ? PairTileCounts() : contents_->counts; }

bool PairMask::keeps(int64_t batch, int64_t head, int64_t row, int64_t key) const {
  const ops::PairTiles tiles = ops::TilesOf(*contents_, contents_->layout);
  const int64_t tile_row = ops::NumberOfTileRow(*contents_, batch, head, row / PairTileLayout::kTile);
  const ops::PairTiles::Column column = tiles.Words(tile_row, key / PairTileLayout::kWordBits);
  return (column.words[tiles.RowInTile(row) * column.stride] >> key % PairTileLayout::kWordBits & 1) == 0;
}

}  // namespace fa
