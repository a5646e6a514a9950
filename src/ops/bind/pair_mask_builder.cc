#include <algorithm>
#include <string>
#include <utility>

#include "core/run/guarded_call.h"
#include "core/saturating.h"
#include "fa/pair_mask.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/pair_contents.h"
#include "ops/bind/pair_rows.h"

namespace fa {
namespace {

using ops::Arg;
using ops::PairTileLayout;
using tiling::Interval;

bool IsMade(const PairMask::Contents& contents, const ops::PairRegion& region) {
  for (int64_t i = 0; i < region.size(); ++i) {
    const int64_t number = ops::NumberOfTileRow(contents, region.BatchOf(i), region.HeadOf(i), region.TileRowOf(i));
    if (contents.made[static_cast<size_t>(number)] != 0) return true;
  }
  return false;
}

/// Checks that a slab lies inside the mask, has all keys, and consists of whole tile rows.
Status CheckSlab(const Dims& whole, const Dims& part, int64_t batch, int64_t head, int64_t row) {
  const int64_t first[] = {batch, head, row};
  const char* const names[] = {"batch", "head", "row"};
  for (int i = 0; i < 3; ++i) {
    if (first[i] >= 0 && first[i] <= whole[i] - part[i] && (i < 2 || first[i] % PairTileLayout::kTile == 0)) continue;
    return Status::InvalidArgument(Arg(names[i]).Is(std::to_string(first[i])) + ", want 0.." +
                                   std::to_string(whole[i] - part[i]) + (i < 2 ? "" : " in steps of 128") + " (" +
                                   Arg("shape") + ")");
  }
  if (part[3] != whole[3]) return ops::WrongSize("mask", 3, part[3], whole[3], {"shape", ops::SizeSource::kArgument});
  if (row + part[2] == whole[2] || part[2] % PairTileLayout::kTile == 0) return Status::Ok();
  return ops::WrongSize("mask", 2, part[2], "want a multiple of 128");
}

}  // namespace

Result<PairMaskBuilder> PairMaskBuilder::Make(const Dims& shape) {
  return core::GuardedCall("the pair mask", [&]() -> Result<PairMaskBuilder> {
    const bool sizes = shape.rank() == 4 && std::all_of(shape.begin(), shape.end(), [](int64_t x) { return x >= 0; });
    if (!sizes || core::SaturatedProduct(shape[0], shape[1], shape[2], shape[3]) > ops::kMostPairs) {
      return Status::InvalidArgument(Arg("shape").Is(ops::Text(shape)) + ", want [B|1,N|Nkv|1,Sq,Sk]");
    }
    PairMaskBuilder builder;
    builder.contents_ = ops::MakeContents(shape);
    return builder;
  });
}

Status PairMaskBuilder::Add(int64_t batch, int64_t head, int64_t row, const TensorView& mask, bool drops,
                            Context* context) {
  return core::GuardedCall("the pair mask", [&]() -> Status {
    if (contents_ == nullptr) return Status::InvalidArgument(Arg("mask").Says("added to a builder that is finished"));
    const Result<ops::PairSourceView> view = ops::BindPairBytes(mask);
    if (!view.ok()) return view.status();
    const Dims& part = view->shape;
    FA_RETURN_IF_ERROR(CheckSlab(contents_->shape, part, batch, head, row));
    const ops::PairRegion region{.batch = batch,
                                 .head = head,
                                 .tile_row = row / PairTileLayout::kTile,
                                 .batches = part[0],
                                 .heads = part[1],
                                 .tile_rows = core::CeilDiv(part[2], PairTileLayout::kTile)};
    if (IsMade(*contents_, region))
      return Status::InvalidArgument(Arg("row").Is(std::to_string(row)) + ", added before");
    ops::PairRowSource source(*view, ops::DroppedByBytes{drops});
    auto placed = [&](int64_t b, int64_t n, Interval rows, Interval keys, uint64_t* words, int64_t stride) {
      source(b - batch, n - head, {rows.begin - row, rows.end - row}, keys, words, stride);
    };
    return ops::MakeTiles(*contents_, region, ops::PairSource(placed), context);
  });
}

Result<PairMask> PairMaskBuilder::Finish() {
  if (contents_ == nullptr) return Status::InvalidArgument(Arg("mask").Says("the builder is finished"));
  const std::vector<uint8_t>& made = contents_->made;
  if (const auto missing = std::find(made.begin(), made.end(), 0); missing != made.end()) {
    const int64_t number = missing - made.begin(), tile_rows = contents_->layout.tile_rows();
    return Status::InvalidArgument(Arg("row").Is(std::to_string(number % tile_rows * PairTileLayout::kTile)) +
                                   ", want it added (" +
                                   Arg("batch").Is(std::to_string(number / tile_rows / contents_->shape[1])) + ", " +
                                   Arg("head").Is(std::to_string(number / tile_rows % contents_->shape[1])) + ")");
  }
  ops::Complete(*contents_);
  return PairMask(std::exchange(contents_, nullptr));
}

}  // namespace fa
