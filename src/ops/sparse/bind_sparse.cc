#include "ops/sparse/bind_sparse.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {
namespace {

constexpr int64_t kMaxBlockSize = 128;

/// The tensors that forward and backward share.
struct SharedArgs {
  const TensorView &q, &k, &v, &q_rope, &k_rope, &indices, &sink;
  TensorView block_table;
  std::span<const int64_t> lengths_q, lengths_kv;
};

Status Wanted(const char* name, const char* why) {
  return Status::InvalidArgument(Arg(name).Says("missing, want it with ") + Arg(why));
}
Status Unwanted(const char* name, const char* why) {
  return Status::InvalidArgument(Arg(name).Says("given, want none without ") + Arg(why));
}

class SparseBinding {
 public:
  SparseBinding(const SharedArgs& args, const SparseAttentionOptions& options, BoundSparse& bound)
      : args_(args), options_(options), bound_(bound), tensors_(options.layout) {}

  /// Binds all inputs. BindForward and BindBackward then bind the outputs.
  Status BindInputs(int64_t dv_of_out);
  Status BindForward(const SparseAttentionArgs& args);
  Status BindBackward(const SparseAttentionGradArgs& args, BoundSparseGrad& grad);

 private:
  Status BindRowFormat();
  Status BindKeys(int64_t dv_of_out);
  Status BindRope();
  Status BindSequences();
  Status BindStatistics(const TensorView& max, const TensorView& sum);

  [[nodiscard]] tiling::AttentionProblem& problem() { return bound_.attention.problem; }
  [[nodiscard]] bool packed() const { return tensors_.packed(); }
  [[nodiscard]] layout::Rows RowsOf(const TensorView& tensor) const { return SparseRowsOf(tensor, packed()); }
  /// LastQuery returns the last dimension of a tensor of queries, and LastKey returns the last dimension of a tensor of
  /// keys.
  [[nodiscard]] int LastQuery() const { return tensors_.leading() + 1; }
  /// Returns " (q.shape[3])".
  [[nodiscard]] ErrorText QueryColumns() const { return " (" + Arg("q", ".shape", At(LastQuery())) + ")"; }

  const SharedArgs& args_;
  const SparseAttentionOptions& options_;
  BoundSparse& bound_;
  SparseTensors tensors_;
};

Status SparseBinding::BindInputs(int64_t dv_of_out) {
  FA_RETURN_IF_ERROR(tensors_.BindQuery("q", args_.q));
  if (options_.block_size < 1 || options_.block_size > kMaxBlockSize) {
    return Status::InvalidArgument(Arg("block_size").Is(std::to_string(options_.block_size)) + ", want 1..128");
  }
  problem().dtype = args_.q.dtype;
  problem().heads = tensors_.heads();
  problem().heads_kv = 1;
  problem().d = tensors_.head_size();
  bound_.attention.q = RowsOf(args_.q);
  bound_.attention.selected_keys = true;
  bound_.check_indices = options_.check_indices;
  FA_RETURN_IF_ERROR(BindRowFormat());
  FA_RETURN_IF_ERROR(BindKeys(dv_of_out));
  FA_RETURN_IF_ERROR(BindRope());
  const auto scale = BindSparseScale(options_.scale ? &*options_.scale : nullptr, problem().d + problem().d_rope);
  if (!scale.ok()) return scale.status();
  bound_.attention.scale = *scale;
  bound_.attention.has_sink = args_.sink.data != nullptr;
  if (bound_.attention.has_sink) {
    FA_RETURN_IF_ERROR(tensors_.CheckHeadValues("sink", args_.sink, {tensors_.heads(), {"q", tensors_.leading()}}));
  }
  FA_RETURN_IF_ERROR(tensors_.CheckIndices(args_.indices));
  bound_.lists = KeyLists(args_.indices, packed(), options_.block_size);
  return BindSequences();
}

Status SparseBinding::BindRowFormat() {
  const KeyRowFormat& format = options_.row_format;
  if (format == KeyRowFormat{}) return Status::Ok();
  const auto wrong = [](const char* name, int64_t got, const Words& want) {
    return Status::InvalidArgument(Arg(name).Is(std::to_string(got)) + ", want " + want.text);
  };
  const int64_t d = problem().d;
  if (format.columns < 1 || format.columns > d) {
    return wrong("row_format.columns", format.columns, "1.." + std::to_string(d) + QueryColumns());
  }
  if (format.rope != d - format.columns) {
    return wrong("row_format.rope", format.rope,
                 std::to_string(d - format.columns) + QueryColumns() + " - " + Arg("row_format.columns"));
  }
  if (format.tile < 1) return wrong("row_format.tile", format.tile, "at least 1");
  if (args_.k.dtype != DType::kI8 && args_.k.dtype != DType::kF8E4M3) {
    return WrongType("k", args_.k.dtype, "i8 or f8e4m3 (" + Arg("row_format") + ")");
  }
  if (args_.q_rope.data != nullptr) {
    return Status::InvalidArgument(Arg("q_rope").Says("given, want none with ") + Arg("row_format"));
  }
  const DType q = args_.q.dtype;
  const int64_t rope_at = format.columns, scales_at = rope_at + format.rope * static_cast<int64_t>(SizeOf(q));
  bound_.quantized = QuantizedRow{.dtype = args_.k.dtype,
                                  .columns = format.columns,
                                  .tile = std::min(format.tile, format.columns),
                                  .scale = RowScale::kF32,
                                  .rope_type = q,
                                  .rope = format.rope,
                                  .rope_at = rope_at,
                                  .scales_at = scales_at};
  return Status::Ok();
}

Status SparseBinding::BindKeys(int64_t dv_of_out) {
  FA_RETURN_IF_ERROR(tensors_.BindBlockTable(args_.block_table));
  const bool quantized = bound_.quantized.has_value();
  const WantedSize one_head{1, {"one key head"}};
  const WantedSize columns = quantized ? WantedSize{bound_.quantized->Bytes(), {"bytes per row"}}
                                       : WantedSize{problem().d, {"q", LastQuery()}};
  const DType dtype = quantized ? args_.k.dtype : problem().dtype;
  FA_RETURN_IF_ERROR(tensors_.BindKey("k", args_.k, one_head, columns, dtype));
  bound_.paged = tensors_.paged();
  const bool packed_keys = packed() && !bound_.paged;
  bound_.k = SparseRowsOf(args_.k, packed_keys);
  if (bound_.paged) bound_.table = tensors_.PagesOf(args_.block_table);
  bound_.has_v = args_.v.data != nullptr;
  problem().dv = dv_of_out;
  if (quantized) {
    if (dv_of_out < 1 || dv_of_out > bound_.quantized->columns) {
      return WrongSize("out", LastQuery(), dv_of_out,
                       "want 1.." + std::to_string(bound_.quantized->columns) + " (" + Arg("row_format.columns") + ")");
    }
    if (!bound_.has_v) return Status::Ok();
    FA_RETURN_IF_ERROR(tensors_.CheckKeySide("v", args_.v, dtype, {one_head, columns}));
    bound_.v = SparseRowsOf(args_.v, packed_keys);
    return Status::Ok();
  }
  if (!bound_.has_v) {
    if (dv_of_out >= 1 && dv_of_out <= problem().d) return Status::Ok();
    return WrongSize(
        "out", LastQuery(), dv_of_out,
        "want 1.." + std::to_string(problem().d) + " (columns of " + Arg("k") + ", without " + Arg("v") + ")");
  }
  const int64_t dv = LastSize(args_.v);
  FA_RETURN_IF_ERROR(tensors_.CheckKeySide("v", args_.v, problem().dtype, {one_head, {dv, {""}}}));
  FA_RETURN_IF_ERROR(CheckHeadSize("v", args_.v.shape.rank() - 1, dv));
  problem().dv = dv;
  bound_.v = SparseRowsOf(args_.v, packed_keys);
  return Status::Ok();
}

Status SparseBinding::BindRope() {
  FA_RETURN_IF_ERROR(tensors_.CheckRope({args_.q_rope, args_.k_rope}, problem().heads, 1, &problem().d_rope));
  bound_.attention.has_rope = problem().d_rope > 0;
  if (!bound_.attention.has_rope) return Status::Ok();
  bound_.attention.q_rope = RowsOf(args_.q_rope);
  bound_.k_rope = SparseRowsOf(args_.k_rope, packed() && !bound_.paged);
  return Status::Ok();
}

Status SparseBinding::BindSequences() {
  auto sequences = BindSparseSequences({.layout = options_.layout,
                                        .paged = bound_.paged,
                                        .batch = tensors_.batch(),
                                        .q_rows = tensors_.q_rows(),
                                        .k_rows = tensors_.k_rows(),
                                        .lengths_q = args_.lengths_q,
                                        .lengths_kv = args_.lengths_kv,
                                        .mask = options_.mask});
  if (!sequences.ok()) return sequences.status();
  if (bound_.paged && static_cast<int64_t>(sequences->list.size()) != tensors_.batch()) {
    return Status::InvalidArgument(Arg("block_table", ".shape", At(0)).Is(std::to_string(tensors_.batch())) +
                                   ", want " + std::to_string(sequences->list.size()) + " (" + Arg("lengths_q") + ")");
  }
  bound_.sequences = std::move(*sequences);
  BoundAttention& attention = bound_.attention;
  for (const SparseSequence& of : bound_.sequences.list) {
    attention.problem.sequences.push_back(
        {.sq = of.sq, .sk = of.sk, .q_offset = of.q_offset, .k_offset = of.k_offset, .rule = {}});
  }
  return Status::Ok();
}

Status SparseBinding::BindStatistics(const TensorView& max, const TensorView& sum) {
  BoundAttention& attention = bound_.attention;
  if (attention.has_max) {
    FA_RETURN_IF_ERROR(tensors_.CheckStatistic("softmax_max", max, 1, problem().heads));
    attention.softmax_max = SparseStatisticOf(max, packed());
  }
  if (attention.has_sum) {
    FA_RETURN_IF_ERROR(tensors_.CheckStatistic("softmax_sum", sum, 1, problem().heads));
    attention.softmax_sum = SparseStatisticOf(sum, packed());
  }
  return Status::Ok();
}

Status SparseBinding::BindForward(const SparseAttentionArgs& args) {
  const WantedSize heads{problem().heads, {"q", LastQuery() - 1}};
  const WantedSize dv{problem().dv, {bound_.has_v ? "v" : "out", args_.k.shape.rank() - 1}};
  FA_RETURN_IF_ERROR(tensors_.CheckQueryOutput("out", args.out, problem().dtype, {heads, dv}));
  BoundAttention& attention = bound_.attention;
  attention.out = RowsOf(args.out);
  attention.has_max = args.softmax_max.data != nullptr;
  attention.has_sum = args.softmax_sum.data != nullptr;
  for (const auto& [name, tensor] : {std::pair{"softmax_max", &args.softmax_max}, {"softmax_sum", &args.softmax_sum}}) {
    if (tensor->data == nullptr) continue;
    FA_RETURN_IF_ERROR(CheckView(name, *tensor));
    FA_RETURN_IF_ERROR(CheckWritable(name, *tensor));
  }
  FA_RETURN_IF_ERROR(BindStatistics(args.softmax_max, args.softmax_sum));
  bound_.has_mean = args.p_head_mean.data != nullptr;
  if (!bound_.has_mean) return Status::Ok();
  if (options_.block_size != 1) {
    return Status::InvalidArgument(Arg("block_size").Is(std::to_string(options_.block_size)) + ", want 1 (" +
                                   Arg("p_head_mean") + ")");
  }
  const WantedSize entries{bound_.lists.entries, {"sparse_indices", LastQuery()}};
  FA_RETURN_IF_ERROR(tensors_.CheckQueryOutput("p_head_mean", args.p_head_mean, DType::kF32, {entries}));
  bound_.mean = SparseValuesOf(args.p_head_mean, packed());
  return Status::Ok();
}

Status SparseBinding::BindBackward(const SparseAttentionGradArgs& args, BoundSparseGrad& grad) {
  const DType dtype = problem().dtype;
  const WantedSize heads{problem().heads, {"q", LastQuery() - 1}}, one_head{1, {"one key head"}};
  const int last_key = args_.k.shape.rank() - 1;
  const WantedSize dv{problem().dv, bound_.has_v ? SizeSource{"v", last_key} : SizeSource{"out", LastQuery()}};
  const WantedSize d{problem().d, {"q", LastQuery()}}, rope{problem().d_rope, {"q_rope", LastQuery()}};
  BoundAttention& attention = bound_.attention;
  FA_RETURN_IF_ERROR(tensors_.CheckQuerySide("out", args.out, dtype, {heads, dv}));
  FA_RETURN_IF_ERROR(tensors_.CheckQuerySide("d_out", args.d_out, dtype, {heads, dv}));
  attention.out = RowsOf(args.out);
  grad.d_out = RowsOf(args.d_out);
  attention.has_max = attention.has_sum = true;
  FA_RETURN_IF_ERROR(BindStatistics(args.softmax_max, args.softmax_sum));

  const auto query = [&](const char* name, const MutableTensorView& tensor, const WantedSize& columns,
                         layout::Rows* rows) {
    FA_RETURN_IF_ERROR(tensors_.CheckQueryOutput(name, tensor, dtype, {heads, columns}));
    *rows = RowsOf(tensor);
    return Status::Ok();
  };
  const auto key = [&](const char* name, const MutableTensorView& tensor, const WantedSize& columns,
                       layout::Rows* rows) {
    FA_RETURN_IF_ERROR(tensors_.CheckKeyOutput(name, tensor, dtype, {one_head, columns}));
    *rows = RowsOf(tensor);
    return Status::Ok();
  };
  FA_RETURN_IF_ERROR(query("dq", args.dq, d, &grad.dq));
  FA_RETURN_IF_ERROR(key("dk", args.dk, d, &grad.dk));
  if (bound_.has_v && args.dv.data == nullptr) return Wanted("dv", "v");
  if (!bound_.has_v && args.dv.data != nullptr) return Unwanted("dv", "v");
  if (bound_.has_v) {
    FA_RETURN_IF_ERROR(key("dv", args.dv, dv, &grad.dv));
  }
  for (const auto& [name, tensor] : {std::pair{"dq_rope", &args.dq_rope}, {"dk_rope", &args.dk_rope}}) {
    if (attention.has_rope && tensor->data == nullptr) return Wanted(name, "q_rope");
    if (!attention.has_rope && tensor->data != nullptr) return Unwanted(name, "q_rope");
  }
  grad.has_dsink = args.dsink.data != nullptr;
  if (grad.has_dsink) {
    if (!attention.has_sink) return Unwanted("dsink", "sink");
    FA_RETURN_IF_ERROR(tensors_.CheckHeadValues("dsink", args.dsink, heads));
    FA_RETURN_IF_ERROR(CheckWritable("dsink", args.dsink));
  }
  if (!attention.has_rope) return Status::Ok();
  FA_RETURN_IF_ERROR(query("dq_rope", args.dq_rope, rope, &grad.dq_rope));
  return key("dk_rope", args.dk_rope, rope, &grad.dk_rope);
}

}  // namespace

tiling::SparseProblem BoundSparse::Problem() const {
  return {.attention = attention.problem,
          .sequences = sequences,
          .entries = lists.entries,
          .block_size = lists.block_size,
          .has_v = has_v,
          .paged = paged || second.paged,
          .shared = shared ? &*shared : nullptr,
          .whole_tokens = has_mean,
          .quantized = quantized ? std::optional(quantized->dtype) : std::nullopt};
}

Result<BoundSparse> BindSparse(const SparseAttentionArgs& args, const SparseAttentionOptions& options) {
  Result<BoundSparse> result{BoundSparse{}};
  const SharedArgs shared{args.q,    args.k,           args.v,         args.q_rope,    args.k_rope, args.sparse_indices,
                          args.sink, args.block_table, args.lengths_q, args.lengths_kv};
  SparseBinding binding(shared, options, *result);
  FA_RETURN_IF_ERROR(binding.BindInputs(LastSize(args.out)));
  FA_RETURN_IF_ERROR(binding.BindForward(args));
  result->planned = KeepPlanned(TensorsOf(args));
  return result;
}

Result<BoundSparseGrad> BindSparseGrad(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options) {
  Result<BoundSparseGrad> result{BoundSparseGrad{}};
  const SharedArgs shared{args.q,    args.k, args.v,         args.q_rope,    args.k_rope, args.sparse_indices,
                          args.sink, {},     args.lengths_q, args.lengths_kv};
  if (options.row_format != KeyRowFormat{}) {
    return Status::InvalidArgument(Arg("row_format").Says("given, want none: quantised keys have no gradient"));
  }
  SparseBinding binding(shared, options, result->forward);
  FA_RETURN_IF_ERROR(binding.BindInputs(LastSize(args.out)));
  FA_RETURN_IF_ERROR(binding.BindBackward(args, *result));
  result->forward.planned = KeepPlanned(TensorsOf(args));
  return result;
}

namespace {

layout::BlockTable TableOf(const BoundSparse& bound, const TensorView& block_table) {
  layout::BlockTable table = bound.table;
  if (bound.paged) table.entries = static_cast<const int32_t*>(block_table.data);
  return table;
}

template <typename Args>
Status CheckRun(const BoundSparse& bound, const Args& args, const TensorView& block_table) {
  const auto tensors = TensorsOf(args);
  FA_RETURN_IF_ERROR(CheckSparseTensors(tensors, bound.planned));
  FA_RETURN_IF_ERROR(CheckSparseLengths(bound.sequences, args));
  if (bound.paged) {
    FA_RETURN_IF_ERROR(CheckSparsePages(TableOf(bound, block_table), bound.sequences));
  }
  if (!bound.check_indices) return Status::Ok();
  return CheckKeyLists(bound.lists, args.sparse_indices.data, bound.sequences);
}

}  // namespace

Status CheckSparseRunArgs(const BoundSparse& bound, const SparseAttentionArgs& args) {
  return CheckRun(bound, args, args.block_table);
}

Status CheckSparseGradRunArgs(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args) {
  return CheckRun(bound.forward, args, {});
}

SparseRows RowsOf(const BoundSparse& bound, const SparseAttentionArgs& args) {
  const BoundAttention& attention = bound.attention;
  const layout::BlockTable table = TableOf(bound, args.block_table);
  const auto keys = [&](const TensorView& tensor, const layout::Rows& rows) -> layout::StoredRows {
    return {.view = {tensor.data, rows}, .table = table};
  };
  return {.attention = {.q = {args.q.data, attention.q},
                        .q_rope = {args.q_rope.data, attention.q_rope},
                        .k = keys(args.k, bound.k),
                        .k_rope = keys(args.k_rope, bound.k_rope),
                        .v = keys(args.v, bound.v),
                        .sink = {args.sink.data, {.head = 1}},
                        .scores = {{.scale = attention.scale}},
                        .out = {args.out.data, attention.out},
                        .softmax_max = {args.softmax_max.data, attention.softmax_max},
                        .softmax_sum = {args.softmax_sum.data, attention.softmax_sum},
                        .selected_keys = attention.selected_keys},
          .lists = {{.lists = bound.lists, .indices = {args.sparse_indices.data, bound.lists.rows}}},
          .mean = {args.p_head_mean.data, bound.mean}};
}

SparseGradRows RowsOf(const BoundSparseGrad& bound, const SparseAttentionGradArgs& args) {
  const BoundSparse& forward = bound.forward;
  const BoundAttention& attention = forward.attention;
  return {.attention = {.q = {args.q.data, attention.q},
                        .q_rope = {args.q_rope.data, attention.q_rope},
                        .k = {args.k.data, forward.k},
                        .k_rope = {args.k_rope.data, forward.k_rope},
                        .v = {args.v.data, forward.v},
                        .out = {args.out.data, attention.out},
                        .d_out = {args.d_out.data, bound.d_out},
                        .softmax_max = {args.softmax_max.data, attention.softmax_max},
                        .softmax_sum = {args.softmax_sum.data, attention.softmax_sum},
                        .sink = {args.sink.data, {.head = 1}},
                        .scores = {{.scale = attention.scale}},
                        .dq = {args.dq.data, bound.dq},
                        .dq_rope = {args.dq_rope.data, bound.dq_rope},
                        .dk = {args.dk.data, bound.dk},
                        .dk_rope = {args.dk_rope.data, bound.dk_rope},
                        .dv = {args.dv.data, bound.dv},
                        .dsink = {args.dsink.data, {.head = 1}}},
          .lists = {{.lists = forward.lists, .indices = {args.sparse_indices.data, forward.lists.rows}}}};
}

}  // namespace fa::ops
