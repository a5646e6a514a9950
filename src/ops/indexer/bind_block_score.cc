#include "ops/indexer/bind_block_score.h"

#include <string>
#include <utility>

#include "core/integer.h"
#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

Status CheckAtLeast(const std::string& name, int64_t number) {
  if (number >= 0) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Is(std::to_string(number)) + ", want at least 0");
}

/// Checks start_loc and keeps it.
Status BindStartLoc(std::span<const int64_t> given, BoundBlockScore& bound) {
  const std::vector<SparseSequence>& sequences = bound.shape.sequences.list;
  if (given.empty()) return Status::Ok();
  if (given.size() != sequences.size()) {
    return Status::InvalidArgument(Arg("start_loc").Has(std::to_string(given.size())) + " entries, want " +
                                   std::to_string(sequences.size()) + " (one per sequence)");
  }
  for (size_t b = 0; b < given.size(); ++b) {
    // Up to this limit, start_loc plus 1 fits in 64 bits.
    constexpr int64_t kMost = int64_t{1} << 60;
    if (given[b] >= 0 && given[b] <= kMost) continue;
    return Status::InvalidArgument(Arg("start_loc", {}, At(static_cast<int64_t>(b))).Is(std::to_string(given[b])) +
                                   ", want 0..2^60");
  }
  bound.start_loc.assign(given.begin(), given.end());
  return Status::Ok();
}

Status BindScore(const MutableTensorView& score, BoundBlockScore& bound) {
  constexpr const char* kName = "score";
  if (score.data == nullptr && score.shape.empty()) return Status::InvalidArgument(Arg(kName).Says("missing"));
  if (score.dtype != DType::kF32) return WrongType(kName, score.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView(kName, score));
  if (score.shape.rank() != 3) {
    return Status::InvalidArgument(Arg(kName, ".shape").Is(Text(score.shape)) + ", want [N1,T1,C]");
  }
  FA_RETURN_IF_ERROR(CheckSize(kName, score, 0, bound.shape.heads, {"q", 1}));
  FA_RETURN_IF_ERROR(CheckSize(kName, score, 1, bound.shape.sequences.q_rows, {"q", 0}));
  const int64_t blocks = bound.shape.BlocksPerHead();
  if (score.shape[2] < blocks) {
    return WrongSize(kName, 2, score.shape[2], "want at least " + std::to_string(blocks) + " (blocks of 128 keys)");
  }
  FA_RETURN_IF_ERROR(CheckWritable(kName, score));
  const Dims stride = layout::FilledStride(score.shape, score.stride);
  bound.score = {.dtype = DType::kF32, .batch = 0, .head = stride[0], .row = stride[1]};
  bound.columns = score.shape[2];
  return Status::Ok();
}

layout::BlockTable BlockScoreTable(const BoundBlockScore& bound, const TensorView& block_table) {
  layout::BlockTable table = bound.table;
  if (bound.paged) table.entries = static_cast<const int32_t*>(block_table.data);
  return table;
}

}  // namespace

Result<BoundBlockScore> BindBlockScore(const MsaIndexScoreArgs& args, const MsaIndexScoreOptions& options) {
  SparseTensors tensors(Layout::kTND);
  const TensorView no_weights;
  auto shape = BindIndexerShape({.q_name = "q",
                                 .k_name = "k",
                                 .q = args.q,
                                 .k = args.k,
                                 .weights = no_weights,
                                 .block_table = args.block_table,
                                 .lengths_q = args.lengths_q,
                                 .lengths_kv = args.lengths_kv,
                                 .layout = Layout::kTND,
                                 .mask = options.mask,
                                 .k_scale = args.k_scale,
                                 .score_block = kMsaBlockSize},
                                tensors);
  if (!shape.ok()) return shape.status();
  BoundBlockScore bound;
  bound.shape = std::move(*shape);
  bound.paged = tensors.paged();
  if (bound.paged) {
    bound.table = tensors.PagesOf(args.block_table);
    const int64_t sequences = std::ssize(bound.shape.sequences.list);
    FA_RETURN_IF_ERROR(CheckSize("block_table", args.block_table, 0, sequences, {"entries of lengths_q"}));
  }
  FA_RETURN_IF_ERROR(BindStartLoc(args.start_loc, bound));
  FA_RETURN_IF_ERROR(CheckAtLeast("init_blocks", options.init_blocks));
  FA_RETURN_IF_ERROR(CheckAtLeast("local_blocks", options.local_blocks));
  bound.init_blocks = options.init_blocks;
  bound.local_blocks = options.local_blocks;
  FA_RETURN_IF_ERROR(BindScore(args.score, bound));
  bound.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckIndexerRunArgs(const BoundBlockScore& bound, const MsaIndexScoreArgs& args) {
  FA_RETURN_IF_ERROR(CheckSparseTensors(TensorsOf(args), bound.planned));
  FA_RETURN_IF_ERROR(CheckSparseLengths(bound.shape.sequences, args));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("start_loc", args.start_loc, bound.start_loc));
  return bound.paged ? CheckSparsePages(BlockScoreTable(bound, args.block_table), bound.shape.sequences) : Status::Ok();
}

BlockScoreRows RowsOf(const BoundBlockScore& bound, const MsaIndexScoreArgs& args) {
  BlockScoreRows rows{.in = bound.shape.RowsOf(args.q, args.k, {}), .score = {args.score.data, bound.score}};
  rows.in.k.table = BlockScoreTable(bound, args.block_table);
  if (args.k_scale.data != nullptr) {
    rows.in.k_scale = {.view = {args.k_scale.data, bound.shape.k_scale}, .table = rows.in.k.table};
  }
  return rows;
}

}  // namespace fa::ops
