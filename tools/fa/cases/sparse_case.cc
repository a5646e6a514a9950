#include "cases/sparse_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "flags/failure.h"
#include "flags/flag_values.h"
#include "npy/npy_array.h"

namespace fa::tool {
namespace {

// Returns the ends of `batch` sequences of `rows` rows each.
std::vector<int64_t> Ends(int64_t batch, int64_t rows) {
  std::vector<int64_t> ends;
  for (int64_t b = 1; b <= batch; ++b) ends.push_back(b * rows);
  return ends;
}

const char* SizesText(SparseCaseKind kind) {
  switch (kind) {
    case SparseCaseKind::kIndexer: return "B,Nidx,S1,S2,D,K";
    case SparseCaseKind::kIndexScore:
    case SparseCaseKind::kDenseIndexer: return "B,Nidx,S1,S2,D";
    case SparseCaseKind::kDenseLoss: return "B,N,S1,S2,D,Drope";
    case SparseCaseKind::kAttention:
    case SparseCaseKind::kLoss: break;
  }
  return "B,N,S1,S2,D,Drope,K";
}

/// Returns whether the operator scores every key for the indexer's queries.
bool IsDense(SparseCaseKind kind) {
  return kind == SparseCaseKind::kDenseIndexer || kind == SparseCaseKind::kIndexScore;
}

bool IsLoss(SparseCaseKind kind) { return kind == SparseCaseKind::kLoss || kind == SparseCaseKind::kDenseLoss; }

std::optional<DType> ParseRows(const SparseCaseFlags& flags) {
  if (flags.rows.empty()) return {};
  if (flags.separate_value) throw UsageError("--separate-value: given, want none with --rows");
  if (flags.tile < 1) throw UsageError(fmt::format("--tile: {}, want at least 1", flags.tile));
  if (flags.rows == "int8") return DType::kI8;
  if (flags.rows == "e4m3") return DType::kF8E4M3;
  throw UsageError(fmt::format("--rows: '{}', want int8 or e4m3", flags.rows));
}

SparseMask ParseMode(int64_t mode) {
  for (const SparseMask mask : {SparseMask::kNone, SparseMask::kRightDownCausal}) {
    if (mode == static_cast<int64_t>(mask)) return mask;
  }
  throw UsageError(fmt::format("--sparse-mode: {}, want 0 or 3", mode));
}

// Refuses sizes of a tensor that has 2^63 bytes or more. SparseCase calls this function with sizes that are upper
// bounds for every tensor of the call.
void CheckSizes(const char* flag, const std::string& text, const std::vector<int64_t>& sizes) {
  if (!npy::BytesOf(sizes, npy::ElementType::kF32)) {
    throw UsageError(fmt::format("{}: {}, want sizes of at least 0 and tensors below 2^63 bytes", flag, text));
  }
}

void CheckOne(const char* flag, const char* name, int64_t size) {
  if (size < 1) throw UsageError(fmt::format("{}: {}={}, want at least 1", flag, name, size));
}

}  // namespace

void AddSparseCaseFlags(CLI::App& command, SparseCaseKind kind, int64_t rows, SparseCaseFlags& flags) {
  flags.shape = kind == SparseCaseKind::kIndexer     ? fmt::format("1,64,{},8192,128,2048", rows)
                : IsDense(kind)                      ? fmt::format("1,64,{},8192,128", rows)
                : kind == SparseCaseKind::kDenseLoss ? fmt::format("1,128,{},8192,512,64", rows)
                                                     : fmt::format("1,128,{},8192,512,64,2048", rows);
  command.add_option("--shape", flags.shape, fmt::format("{}, default {}", SizesText(kind), flags.shape))
      ->type_name(SizesText(kind));
  if (IsLoss(kind)) {
    command.add_option("--indexer", flags.indexer, "Heads of the indexer and their size, default 64,128")
        ->type_name("Nidx,Didx");
  }
  if (kind == SparseCaseKind::kAttention) {
    command.add_flag("--separate-value", flags.separate_value,
                     "Values in a tensor of their own; default: the keys' first columns");
  }
  command.add_option("--dtype", flags.dtype, "Default: bf16")->type_name("bf16|f16|f32");
  if (kind == SparseCaseKind::kIndexScore) {
    flags.layout = "TND";
  } else {
    command.add_option("--layout", flags.layout, "Default: BSND")->type_name("BSND|TND");
  }
  command.add_option("--sparse-mode", flags.sparse_mode, "3 (default): causal to the last key; 0: all keys")
      ->type_name("N");
}

void AddPagesFlag(CLI::App& command, SparseCaseFlags& flags) {
  command
      .add_option("--block-size", flags.block_size,
                  "Rows per page of keys and values, with pages in random order; 0 (default): no pages")
      ->type_name("N");
}

void AddRowsFlags(CLI::App& command, SparseCaseKind kind, SparseCaseFlags& flags) {
  CLI::Option* rows = command.add_option("--rows", flags.rows, "Type of quantised keys; default: not quantised");
  rows->type_name("int8|e4m3");
  if (kind != SparseCaseKind::kAttention) return;
  command.add_option("--tile", flags.tile, "With --rows: numbers per scale; default: 128")->type_name("N")->needs(rows);
}

SparseCase::SparseCase(SparseCaseKind kind, const SparseCaseFlags& flags)
    : block_size(flags.block_size),
      dtype(ParseFloatType(flags.dtype)),
      layout(ParseLayout(flags.layout)),
      mask(ParseMode(flags.sparse_mode)),
      separate_value(flags.separate_value),
      rows(ParseRows(flags)),
      tile(flags.tile),
      shape(ParseIntegers("--shape", flags.shape)) {
  if (layout != Layout::kBSND && layout != Layout::kTND) {
    throw UsageError(fmt::format("--layout: {}, want BSND or TND", flags.layout));
  }
  if (block_size < 0) throw UsageError(fmt::format("--block-size: {}, want at least 0", block_size));
  const bool every_key = kind == SparseCaseKind::kDenseLoss || IsDense(kind);
  const bool indexer_alone = kind == SparseCaseKind::kIndexer || IsDense(kind);
  if (shape.size() != 7U - (indexer_alone ? 1 : 0) - (every_key ? 1 : 0)) {
    throw UsageError(fmt::format("--shape: {} sizes, want {}", shape.size(), SizesText(kind)));
  }
  batch = shape[0], s1 = shape[2], s2 = shape[3], k = every_key ? s2 : shape.back();
  if (indexer_alone) {
    index_heads = shape[1], index_d = shape[4];
  } else {
    heads = shape[1], d = shape[4], d_rope = shape[5];
  }
  CheckOne("--shape", indexer_alone ? "Nidx" : "N", shape[1]);
  CheckHeadSize("--shape", "D", shape[4]);
  if (d_rope != 0) CheckHeadSize("--shape", "Drope", d_rope);
  if (IsLoss(kind)) {
    const std::vector<int64_t> sizes = ParseIntegers("--indexer", flags.indexer);
    if (sizes.size() != 2) throw UsageError(fmt::format("--indexer: {} sizes, want Nidx,Didx", sizes.size()));
    index_heads = sizes[0], index_d = sizes[1];
    CheckOne("--indexer", "Nidx", index_heads);
    CheckHeadSize("--indexer", "Didx", index_d);
    CheckSizes("--indexer", flags.indexer, {batch, s1, index_heads, index_d});
  }
  CheckSizes("--shape", flags.shape, {batch, s1, std::max(heads, index_heads), std::max(d, index_d)});
  CheckSizes("--shape", flags.shape, {batch, s1, k});
  if (kind == SparseCaseKind::kIndexScore) CheckSizes("--shape", flags.shape, {batch, s1, index_heads, s2});
  CheckSizes("--shape", flags.shape, {batch, s2, std::max(d, index_d)});
  CheckSizes("--shape", flags.shape, {batch, std::max(s1, s2), std::max<int64_t>(heads, 1), d_rope});
  // A sequence may fill only a part of its last page. So the pages may take more memory than the keys.
  CheckSizes("--block-size", std::to_string(block_size), {batch, block_size, std::max(d, index_d) + d_rope});
  if (layout == Layout::kTND || paged()) CheckListedSequences("--shape", batch);
  if (layout == Layout::kTND) {
    cu_q_ = Ends(batch, s1);
    cu_kv_ = Ends(batch, s2);
  }
  if (paged()) cu_kv_.assign(static_cast<size_t>(batch), s2);
}

int64_t SparseCase::Limit(int64_t t) const {
  return mask == SparseMask::kNone ? s2 : std::clamp<int64_t>(s2 - s1 + t + 1, 0, s2);
}

std::string SparseCase::MaskText() const { return fmt::format("sparse-mode {}", static_cast<int>(mask)); }

MutableTensorView SparseCase::PerRow(DType type, int64_t rows, int64_t row_heads, int64_t size) const {
  static char present;  // planning only asks whether a tensor is given, so any address will do
  const int64_t seq = layout == Layout::kTND ? batch * rows : rows;
  const std::vector<int64_t> sizes = ShapeOf(layout, {.batch = batch, .seq = seq, .heads = row_heads, .d = size});
  return {&present, type, Dims(std::span(sizes)), {}};
}

MutableTensorView SparseCase::KeysOfCall(int64_t size, DType type) const {
  MutableTensorView view = PerRow(type, s2, 1, size);
  if (paged()) view.shape = {batch * pages_of_one(), block_size, 1, size};
  return view;
}

TensorView SparseCase::BlockTable() const {
  TensorView view = Keys(1);
  view.dtype = DType::kI32;
  view.shape = {batch, pages_of_one()};
  return paged() ? view : TensorView{};
}

MutableTensorView SparseCase::Weights() const {
  MutableTensorView view = PerRow(dtype, s1, index_heads, 1);
  view.shape = layout == Layout::kTND ? Dims{batch * s1, index_heads} : Dims{batch, s1, index_heads};
  return view;
}

MutableTensorView SparseCase::QueryScales() const {
  MutableTensorView view = Weights();
  view.dtype = DType::kF32;
  return view;
}

MutableTensorView SparseCase::KeyScales() const {
  MutableTensorView view = KeysOfCall(1, DType::kF32);
  view.shape = view.shape.rank() == 3 ? Dims{view.shape[0]} : Dims{view.shape[0], view.shape[1]};
  return view;
}

MutableTensorView SparseCase::Statistics() const {
  MutableTensorView view = PerRow(DType::kF32, s1, 1, heads);
  view.shape = layout == Layout::kTND ? Dims{1, batch * s1, heads} : Dims{batch, 1, s1, heads};
  return view;
}

MutableTensorView SparseCase::RowStatistics() const {
  MutableTensorView view = PerRow(DType::kF32, s1, 1, 1);
  view.shape = layout == Layout::kTND ? Dims{1, batch * s1} : Dims{batch, 1, s1};
  return view;
}

SparseAttentionArgs SparseCase::ForwardArgs() const {
  SparseAttentionArgs args;
  args.q = args.out = Queries(d);
  args.k = KeysOfCall(d, dtype);
  if (separate_value) args.v = args.k;
  if (rows) {
    args.q = Queries(d + d_rope);
    args.k = KeysOfCall(RowFormat().Bytes(dtype), *rows);
  } else if (d_rope > 0) {
    args.q_rope = Queries(d_rope);
    args.k_rope = KeysOfCall(d_rope, dtype);
  }
  args.sparse_indices = PerRow(DType::kI32, s1, 1, k);
  args.block_table = BlockTable();
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.softmax_max = args.softmax_sum = Statistics();
  return args;
}

SparseAttentionGradArgs SparseCase::BackwardArgs() const {
  const SparseAttentionArgs forward = ForwardArgs();
  SparseAttentionGradArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.sparse_indices = forward.sparse_indices;
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.out = args.d_out = forward.out;
  args.softmax_max = args.softmax_sum = forward.softmax_max;
  args.dq = PerRow(dtype, s1, heads, d);
  args.dk = Keys(d);
  if (separate_value) args.dv = args.dk;
  if (d_rope > 0) {
    args.dq_rope = PerRow(dtype, s1, heads, d_rope);
    args.dk_rope = Keys(d_rope);
  }
  return args;
}

LightningIndexerArgs SparseCase::IndexerArgs() const {
  LightningIndexerArgs args;
  args.q = PerRow(rows.value_or(dtype), s1, index_heads, index_d);
  args.k = KeysOfCall(index_d, rows.value_or(dtype));
  args.weights = Weights();
  if (rows) {
    args.q_scale = QueryScales();
    args.k_scale = KeyScales();
  }
  args.block_table = BlockTable();
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.sparse_indices = PerRow(DType::kI32, s1, 1, k);
  args.sparse_values = PerRow(DType::kF32, s1, 1, k);
  return args;
}

LightningIndexerGradArgs SparseCase::IndexerGradArgs() const {
  LightningIndexerGradArgs args;
  args.q = PerRow(dtype, s1, index_heads, index_d);
  args.k = Keys(index_d);
  args.weights = Weights();
  args.sparse_indices = PerRow(DType::kI32, s1, 1, k);
  args.d_values = PerRow(DType::kF32, s1, 1, k);
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.dq = PerRow(dtype, s1, index_heads, index_d);
  args.dk = Keys(index_d);
  args.dweights = Weights();
  return args;
}

DenseIndexerLseArgs SparseCase::LseArgs() const {
  DenseIndexerLseArgs args;
  args.q_index = PerRow(dtype, s1, index_heads, index_d);
  args.k_index = Keys(index_d);
  args.weights = Weights();
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.softmax_max_index = args.softmax_sum_index = RowStatistics();
  return args;
}

MsaIndexScoreArgs SparseCase::ScoreArgs() const {
  MsaIndexScoreArgs args;
  args.q = PerRow(dtype, s1, index_heads, index_d);
  args.k = Keys(index_d);
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.score = PerRow(DType::kF32, s1, 1, 1);
  args.score.shape = {index_heads, batch * s1, (s2 + kMsaBlockSize - 1) / kMsaBlockSize};
  return args;
}

SparseIndexerLossArgs SparseCase::LossArgs() const {
  const SparseAttentionArgs forward = ForwardArgs();
  const LightningIndexerGradArgs indexer = IndexerGradArgs();
  SparseIndexerLossArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.q_index = indexer.q;
  args.k_index = indexer.k;
  args.weights = indexer.weights;
  args.sparse_indices = forward.sparse_indices;
  args.softmax_max = args.softmax_sum = forward.softmax_max;
  args.lengths_q = cu_q_;
  args.lengths_kv = cu_kv_;
  args.dq_index = indexer.dq;
  args.dk_index = indexer.dk;
  args.dweights = indexer.dweights;
  args.loss = {indexer.dq.data, DType::kF32, {1}, {}};
  return args;
}

DenseIndexerLossArgs SparseCase::DenseLossArgs(const SparseIndexerLossArgs& shared) const {
  DenseIndexerLossArgs args;
  args.q = shared.q;
  args.k = shared.k;
  args.q_rope = shared.q_rope;
  args.k_rope = shared.k_rope;
  args.q_index = shared.q_index;
  args.k_index = shared.k_index;
  args.weights = shared.weights;
  args.softmax_max = shared.softmax_max;
  args.softmax_sum = shared.softmax_sum;
  args.softmax_max_index = args.softmax_sum_index = RowStatistics();
  args.lengths_q = shared.lengths_q;
  args.lengths_kv = shared.lengths_kv;
  args.dq_index = shared.dq_index;
  args.dk_index = shared.dk_index;
  args.dweights = shared.dweights;
  args.loss = shared.loss;
  return args;
}

}  // namespace fa::tool
