#ifndef FA_PAIR_MASK_H_
#define FA_PAIR_MASK_H_

/// @file
/// Masks with one decision per pair of a query row and a key. A mask is made once and used by many calls.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// const std::vector<uint8_t> drop(128 * 128);
/// const auto mask = fa::PairMask::FromBytes(fa::View(drop, {128, 128}), true);  // 1 = drop
/// if (!mask.ok()) return mask.status();
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// args.pair_mask = &*mask;
/// return fa::FlashAttention(args, {.mask = fa::Mask::Causal()});  // a pair is kept if both masks keep it
/// @endcode

#include <cstdint>
#include <memory>
#include <utility>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// How many tiles of a PairMask keep no pair, every pair, or some pairs.
struct PairTileCounts {
  int64_t empty = 0, full = 0, partial = 0;
};

/// The sizes of a mask that is made from lists. List r stands for the rows [r * block_rows, (r + 1) * block_rows), and
/// its entry x for the keys [x * block_keys, (x + 1) * block_keys).
struct PairLists {
  int64_t rows = 0, keys = 0;
  int64_t block_rows = 1, block_keys = 1;
};

/// A mask with one decision per pair of a query row and a key, [B|1, N|Nkv|1, Sq, Sk]. Operators also take one row that
/// stands for all rows. The mask is a map of tiles of 128 rows and 128 keys; the last tiles may be smaller. A tile
/// keeps no pair, keeps every pair, or has one bit per pair. Attention skips tiles that keep no pair, and applies no
/// mask in tiles that keep every pair. With AMX it does not skip a tile between kept tiles.
///
/// The object is a handle of immutable contents. Copies share the contents, and any number of threads may read them.
/// Its memory is one byte per tile, one bit per pair in tiles that keep some pairs, and 16 bytes per 64 tiles in a row
/// of tiles.
///
/// The makers read their source in parallel, with 128 KiB of extra memory per thread. Sources are [Sq, Sk] or
/// [B|1, N|Nkv|1, Sq, Sk]. Makers return kInvalidArgument, which names the parameter ("mask.dtype=f32, want ..."), or
/// kOutOfMemory.
class FA_API PairMask {
 public:
  /// The rows and the keys of a tile.
  static constexpr int64_t kTile = 128;

  /// Makes an object without a mask, which operators refuse.
  PairMask() = default;
  /// Makes a mask from u8, bool or i8. A value other than 0 keeps its pair or, with `drops`, drops it.
  static Result<PairMask> FromBytes(const TensorView& mask, bool drops, Context* context = nullptr);
  /// Makes a mask from numbers that are added to scores, f32, bf16 or f16. Numbers at or below half of the lowest
  /// finite number of their type drop their pairs. NaN keeps its pair.
  /// @param adds  optional: receives whether a kept number is not 0, so that the call needs the tensor as a bias too
  static Result<PairMask> FromAdditive(const TensorView& scores, bool* adds, Context* context = nullptr);
  /// Makes a mask from lists of keys or of blocks of keys, i32 or i64 [.., lists, K]. A negative entry names no key. A
  /// key may be listed more than once.
  static Result<PairMask> FromIndices(const TensorView& indices, const PairLists& lists, Context* context = nullptr);
  /// Makes a mask from bits, i64 [.., Sq, ceil(keys / 64)]. Key j is kept if bit j % 64 of word j / 64 is set.
  static Result<PairMask> FromBits(const TensorView& words, int64_t keys, Context* context = nullptr);

  /// Makes the mask that keeps what both masks keep. If one mask has a single batch element, head or row, that one
  /// holds for all batch elements, heads or rows of the other mask.
  static Result<PairMask> Intersection(const PairMask& a, const PairMask& b, Context* context = nullptr);

  /// Returns [B|1, N|Nkv|1, Sq, Sk], or no dimensions without a mask.
  [[nodiscard]] Dims shape() const;
  [[nodiscard]] int64_t bytes() const;  ///< the memory of the contents
  [[nodiscard]] PairTileCounts tiles() const;
  /// Returns whether a pair is kept. All four indices are within shape().
  [[nodiscard]] bool keeps(int64_t batch, int64_t head, int64_t row, int64_t key) const;

  struct Contents;  ///< internal, as are the next two functions
  explicit PairMask(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  [[nodiscard]] const Contents* contents() const { return contents_.get(); }

 private:
  std::shared_ptr<const Contents> contents_;
};

/// Makes a PairMask from slabs of rows, so that no tensor of all pairs is needed.
/// @code{.cpp}
/// auto builder = fa::PairMaskBuilder::Make({1, 1, 512, 512});
/// if (!builder.ok()) return builder.status();
/// std::vector<uint8_t> slab(128 * 512, 1);
/// for (int64_t row = 0; row < 512; row += 128) {
///   const fa::Status status = builder->Add(0, 0, row, fa::View(slab, {1, 1, 128, 512}), false);
///   if (!status.ok()) return status;
/// }
/// return builder->Finish().status();
/// @endcode
class FA_API PairMaskBuilder {
 public:
  PairMaskBuilder(PairMaskBuilder&&) = default;
  PairMaskBuilder& operator=(PairMaskBuilder&&) = default;

  /// @param shape  [B|1, N|Nkv|1, Sq, Sk] of the mask
  static Result<PairMaskBuilder> Make(const Dims& shape);
  /// Adds `mask`, a slab [b, h, rows, Sk] of u8, bool or i8, whose first element has the indices batch, head and row.
  /// `row` must be a multiple of PairMask::kTile. So must be the number of rows, unless the slab contains the last row.
  /// Every row is added once. Calls for different rows may run at the same time.
  Status Add(int64_t batch, int64_t head, int64_t row, const TensorView& mask, bool drops, Context* context = nullptr);
  /// Returns the mask, or an error if rows are missing. The builder must not be used again.
  Result<PairMask> Finish();

 private:
  PairMaskBuilder() = default;

  std::shared_ptr<PairMask::Contents> contents_;
};

}  // namespace fa

#endif  // FA_PAIR_MASK_H_
