#include "ranks/call/score_rows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/saturating.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

using core::SaturatedProduct;
using core::SaturatedSum;
using tiling::Interval;

constexpr int kPseRows = 2;  // the dimension of rows in [B|1,N,Sq,Sk]

TensorView Shape(const TensorView& tensor) { return {nullptr, tensor.dtype, tensor.shape, tensor.stride}; }

/// Returns whether the caller gave the tensor. A tensor without elements counts as given even if its data is null.
bool Given(const TensorView& tensor) {
  const auto is_empty = [](int64_t size) { return size == 0; };
  return tensor.data != nullptr || std::any_of(tensor.shape.begin(), tensor.shape.end(), is_empty);
}

std::string OwnRowsText(int64_t own, const WholeTensors& shards) {
  return std::to_string(own) + " (rows of this rank of " + std::to_string(shards.queries().rows()) + ")";
}

/// The numbers of elements that pse may have in the flat forms of TND. In the three forms, pse has the rank's own rows,
/// all rows, or one row per sequence and head.
struct FlatSizes {
  int64_t own = 0, whole = 0, shared = 0;
};

/// Computes the sizes of the flat forms.
/// @return false if heads or prefix sums are wrong; bind then reports the error
bool SizesOf(const ScoreArguments& args, const WholeTensors& shards, FlatSizes* sizes) {
  if (args.q.shape.rank() != 3 || args.cu_q.size() != args.cu_kv.size()) return false;
  const int64_t heads = args.q.shape[1];
  Interval rows{0, 0}, keys{0, 0};
  for (size_t b = 0; b < args.cu_q.size(); ++b) {
    rows = {rows.end, args.cu_q[b]};
    keys = {keys.end, args.cu_kv[b]};
    if (rows.end < rows.begin || rows.end > shards.queries().rows() || keys.end < keys.begin) return false;
    const auto add = [&](int64_t& sum, int64_t count) {
      sum = SaturatedSum(sum, SaturatedProduct(heads, count, keys.size()));
    };
    add(sizes->own, shards.OwnCount(rows));
    add(sizes->whole, rows.size());
    add(sizes->shared, 1);
  }
  return true;
}

/// Gives a pse [N*sum(Sq*Sk)] or [N*sum(Sk)] the size that it has in the whole call.
Status WidenFlat(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse, ScoreRows* scores) {
  FlatSizes sizes;
  if (!SizesOf(args, shards, &sizes)) return Status::Ok();
  const int64_t size = args.pse.shape[0];
  scores->pse_forms = (size == sizes.own ? kOwnRows : 0) | (size == sizes.shared ? kSharedRow : 0);
  if (scores->pse_forms == 0) {
    return WrongSize(
        "pse", 0, size,
        "want N*sum(Sq*Sk)=" + OwnRowsText(sizes.own, shards) + " or N*sum(Sk)=" + std::to_string(sizes.shared));
  }
  if ((scores->pse_forms & kOwnRows) != 0) pse->shape[0] = sizes.whole;
  return Status::Ok();
}

/// Gives a pse [B|1,N,Sq,Sk], [B|1,N,1,Sk] or [B|1,N,1024,Sk] the sizes that it has in the whole call.
Status WidenRows(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse, ScoreRows* scores) {
  constexpr int64_t kStored = kCompressedRows;
  const int64_t rows = args.pse.shape[kPseRows], all = shards.queries().rows(), own = shards.OwnCount({0, all});
  scores->pse_forms = (rows == own ? kOwnRows : 0) | (rows == 1 ? kSharedRow : 0) |
                      (rows == kStored && all > kStored ? kCompressed : 0);
  if (scores->pse_forms == 0) {
    return WrongSize("pse", kPseRows, rows,
                     "want " + OwnRowsText(own, shards) + (all > kStored ? ", 1 or 1024 (compressed)" : " or 1"));
  }
  if ((scores->pse_forms & kOwnRows) == 0) return Status::Ok();
  pse->shape[kPseRows] = all;
  pse->stride = {};
  return Status::Ok();
}

/// Gives a tensor without elements an address, so that bind takes the tensor as given.
void MarkPresent(TensorView* tensor) {
  static constexpr char kPresent = 0;
  if (tensor->data == nullptr) tensor->data = &kPresent;
}

Status WidenPse(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse, ScoreRows* scores) {
  const bool packed = args.options.layout == Layout::kTND;
  const int rank = args.pse.shape.rank();
  if (rank != 4 && !(packed && rank == 1)) return Status::Ok();
  if (!Given(args.pse)) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckView("pse", args.pse));
  Status status;
  if (packed && rank == 4) {
    scores->pse_forms = kCompressed;
  } else {
    status = packed ? WidenFlat(args, shards, pse, scores) : WidenRows(args, shards, pse, scores);
  }
  if (status.ok()) {
    scores->pse = Shape(args.pse);
    MarkPresent(pse);
  }
  return status;
}

/// Gives dpse the sizes of pse in the whole call.
Status WidenDpse(const ScoreArguments& args, const TensorView& whole_pse, MutableTensorView* dpse, ScoreRows* scores) {
  if (scores->pse.shape.empty() || !Given(args.dpse)) return Status::Ok();
  const Dims &shape = args.dpse.shape, &want = scores->pse.shape;
  if (shape.rank() != want.rank()) {
    return Status::InvalidArgument(Arg("dpse", ".shape").Is(Text(shape)) + ", want " + Text(want) + " (" +
                                   Arg("pse", ".shape") + ")");
  }
  FA_RETURN_IF_ERROR(CheckView("dpse", args.dpse));
  for (int i = 0; i < want.rank(); ++i) {
    FA_RETURN_IF_ERROR(CheckSize("dpse", args.dpse, i, want[i], {"pse", i}));
  }
  if (!args.dpse.stride.empty() && layout::OverlapsItself(args.dpse)) {
    return Status::InvalidArgument(Arg("dpse", ".stride").Is(Text(args.dpse.stride)) +
                                   ", want strides that keep its elements apart");
  }
  scores->dpse = Shape(args.dpse);
  dpse->shape = whole_pse.shape;
  dpse->stride = {};
  static char present;
  if (dpse->data == nullptr) dpse->data = &present;
  return Status::Ok();
}

/// Gives a mask [Sq,Sk] or [B|1,N|1,Sq,Sk] the sizes that it has in the whole call. The mask of TND and compressed
/// masks are whole on every rank.
Status WidenMask(const ScoreArguments& args, const WholeTensors& shards, TensorView* mask, ScoreRows* scores) {
  const int rank = args.dense_mask.shape.rank();
  if (args.options.layout == Layout::kTND || IsCompressedMode(args.options.mask.sparse_mode())) return Status::Ok();
  if (rank != 2 && rank != 4) return Status::Ok();
  if (!Given(args.dense_mask)) return Status::Ok();
  FA_RETURN_IF_ERROR(shards.WidenQueries("dense_mask", mask, rank - 2));
  scores->dense_mask = Shape(args.dense_mask);
  scores->own_mask_rows = true;
  MarkPresent(mask);
  return Status::Ok();
}

/// Returns where the rows of each part lie in a tensor.
/// @param first_row  first_row(part) is the part's first row among the tensor's rows of that sequence
template <typename FirstRow>
std::vector<PairRows::PerSequence> Places(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                          int64_t first_head, const FirstRow& first_row) {
  std::vector<PairRows::PerSequence> places;
  if (rows.sequences.empty()) return places;
  for (const tiling::RowPart& part : parts) {
    PairRows::PerSequence place = rows.sequences[static_cast<size_t>(part.sequence)];
    place.offset += first_head * place.head;
    if (place.row != 0) place.offset += first_row(part) * place.row;
    places.push_back(place);
  }
  return places;
}

}  // namespace

Result<ScoreRows> WidenScores(const ScoreArguments& args, const WholeTensors& shards, TensorView* pse,
                              MutableTensorView* dpse, TensorView* dense_mask) {
  ScoreRows scores;
  if (args.options.pse_type < PseType::kSlopes) {
    FA_RETURN_IF_ERROR(WidenPse(args, shards, pse, &scores));
    FA_RETURN_IF_ERROR(WidenDpse(args, *pse, dpse, &scores));
  } else {
    scores.pse = Shape(args.pse);
  }
  FA_RETURN_IF_ERROR(WidenMask(args, shards, dense_mask, &scores));
  return scores;
}

Result<SequenceShards::Strategy> StrategyWith(const ScoreRows& scores, SequenceShards::Strategy wanted) {
  using Strategy = SequenceShards::Strategy;
  if (!scores.rows_stay()) return wanted;
  if (wanted != Strategy::kHeads) return Strategy::kSequence;
  return Status::InvalidArgument(Arg("shards.strategy").Is("heads") + ", want auto or sequence: rows of " +
                                 Arg(scores.own_mask_rows ? "dense_mask" : "pse") + " stay with their rank");
}

PseRows PseOfRank(const TensorView& tensor, const PseRows& pse, uint32_t form, const tiling::AttentionProblem& problem,
                  const WholeTensors& shards) {
  PseRows rows = pse;
  rows.shared_rows = form == kSharedRow;
  rows.compressed = form == kCompressed;
  if (tensor.shape.rank() == 4) return GradPseRows(rows, tensor);
  int64_t offset = 0;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const tiling::Sequence& sequence = problem.sequences[b];
    const int64_t own = shards.OwnCount({sequence.q_offset, sequence.q_offset + sequence.sq});
    const int64_t head = rows.shared_rows ? sequence.sk : own * sequence.sk;
    rows.sequences[b] = {.offset = offset, .head = head, .row = rows.shared_rows ? 0 : sequence.sk};
    offset += problem.heads * head;
  }
  return rows;
}

std::vector<PairRows::PerSequence> PlacesOf(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                            int64_t first_head, bool packed) {
  return Places(rows, parts, first_head, [&](const tiling::RowPart& part) {
    if (!packed) return part.placed.at;
    const auto of_sequence = std::equal_range(  // `parts` is ordered by sequence
        parts.begin(), parts.end(), part, [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    int64_t before = 0;
    for (auto other = of_sequence.first; other != of_sequence.second; ++other) {
      if (other->placed.at < part.placed.at) before += other->placed.rows.size();
    }
    return before;
  });
}

std::vector<PairRows::PerSequence> PlacesOfSequences(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                                     int64_t first_head) {
  return Places(rows, parts, first_head, [](const tiling::RowPart& /*part*/) { return 0; });
}

std::vector<PairRows::PerSequence> PlacesInWhole(const PairRows& rows, std::span<const tiling::RowPart> parts,
                                                 int64_t first_head) {
  return Places(rows, parts, first_head, [](const tiling::RowPart& part) { return part.placed.rows.begin; });
}

}  // namespace fa::ops
