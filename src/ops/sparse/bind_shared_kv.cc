#include "ops/sparse/bind_shared_kv.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>

#include "core/saturating.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/prefix_sums.h"
#include "ops/plan/plan_machine.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {
namespace {

/// Limits of windows and ratios. Within these limits no position, and no sum of a position and a limit, overflows 64
/// bits.
constexpr int64_t kMostTokensOfWindow = int64_t{1} << 40, kMostRatio = int64_t{1} << 30;

/// The arguments for the original keys or for the compressed keys, with the names of the arguments.
struct KeyRangeArgs {
  struct {
    const char *kv, *indices, *topk_length, *table, *cu, *used;
  } name;
  const TensorView &kv, &indices, &topk_length;
  TensorView table;
  std::span<const int64_t> cu, used;

  [[nodiscard]] bool given() const { return kv.data != nullptr; }
  [[nodiscard]] bool listed() const { return indices.data != nullptr; }
};

template <typename Args>
TensorView TableIn(const Args& args, TensorView SharedKvArgs::*member) {
  if constexpr (std::is_same_v<Args, SharedKvArgs>) return args.*member;
  return {};
}

template <typename Args>
KeyRangeArgs OriginalKeys(const Args& args) {
  return {{"ori_kv", "ori_indices", "ori_topk_length", "ori_block_table", "cu_ori", "used_ori"},
          args.ori_kv,
          args.ori_indices,
          args.ori_topk_length,
          TableIn(args, &SharedKvArgs::ori_block_table),
          args.cu_ori,
          args.used_ori};
}

template <typename Args>
KeyRangeArgs CompressedKeys(const Args& args) {
  return {{"cmp_kv", "cmp_indices", "cmp_topk_length", "cmp_block_table", "cu_cmp", "used_cmp"},
          args.cmp_kv,
          args.cmp_indices,
          args.cmp_topk_length,
          TableIn(args, &SharedKvArgs::cmp_block_table),
          args.cu_cmp,
          args.used_cmp};
}

Status UnwantedWithout(const char* name, const char* other) {
  return Status::InvalidArgument(Arg(name).Says("given, want none without ") + Arg(other));
}
Status WantedWith(const char* name, const char* other) {
  return Status::InvalidArgument(Arg(name).Says("missing, want it with ") + Arg(other));
}

Status CheckWindow(const char* name, int64_t value) {
  if (value >= -1) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Is(std::to_string(value)) + ", want -1 or more");
}

class SharedKvBinding {
 public:
  SharedKvBinding(const KeyRangeArgs& ori, const KeyRangeArgs& cmp, const SharedKvOptions& options, BoundSparse& bound,
                  SharedKvParts& parts)
      : ori_(ori),
        cmp_(cmp),
        options_(options),
        bound_(bound),
        parts_(parts),
        ori_tensors_(options.layout),
        cmp_tensors_(options.layout) {}

  /// Binds all inputs. BindForward and BindBackward then bind the outputs.
  template <typename Args>
  Status BindInputs(const Args& args);
  Status BindForward(const SharedKvArgs& args);
  Status BindBackward(const SharedKvGradArgs& args, BoundSparseGrad& grad);

 private:
  struct RangeParts {
    layout::Rows *k, *topk_length;
    KeyLists* lists;
    bool* paged;
    layout::BlockTable* table;
    int64_t* entries;  ///< where to store SharedKeys::first_entries or second_entries
  };

  Status CheckOptions() const;
  Status BindRowFormat();
  Status BindRange(const KeyRangeArgs& range, SparseTensors& tensors, const RangeParts& to);
  /// Returns the sequences as if the call had the keys of this range only.
  [[nodiscard]] Result<SparseSequences> SequencesOf(const KeyRangeArgs& range, const SparseTensors& tensors,
                                                    std::span<const int64_t> cu_q,
                                                    std::span<const int64_t> used_q) const;
  Status BindSequences(std::span<const int64_t> cu_q, std::span<const int64_t> used_q,
                       std::span<const int64_t> residual);
  Status BindLse(const TensorView& lse, layout::Stats& to) const;
  Status BindMean(const char* name, const MutableTensorView& tensor, const KeyRangeArgs& range, int64_t entries,
                  BoundMean& mean) const;

  [[nodiscard]] tiling::AttentionProblem& problem() { return bound_.attention.problem; }
  [[nodiscard]] bool packed() const { return q().packed(); }
  [[nodiscard]] const SparseTensors& q() const { return ori_tensors_; }
  [[nodiscard]] int LastQuery() const { return q().leading() + 1; }
  [[nodiscard]] WantedSize Heads() const { return {q().heads(), {"q", LastQuery() - 1}}; }
  [[nodiscard]] WantedSize Columns() const { return {q().head_size(), {"q", LastQuery()}}; }

  const KeyRangeArgs &ori_, &cmp_;
  const SharedKvOptions& options_;
  BoundSparse& bound_;
  SharedKvParts& parts_;
  SparseTensors ori_tensors_, cmp_tensors_;
};

Status SharedKvBinding::CheckOptions() const {
  if (options_.cmp_ratio < 1 || options_.cmp_ratio > kMostRatio) {
    return Status::InvalidArgument(Arg("cmp_ratio").Is(std::to_string(options_.cmp_ratio)) + ", want 1.." +
                                   std::to_string(kMostRatio));
  }
  FA_RETURN_IF_ERROR(CheckWindow("window_left", options_.window_left));
  FA_RETURN_IF_ERROR(CheckWindow("window_right", options_.window_right));
  const auto mask = [](const char* name, SparseMask value, bool band) {
    if (value == SparseMask::kNone || value == SparseMask::kRightDownCausal) return Status::Ok();
    if (band && value == SparseMask::kBand) return Status::Ok();
    return Status::InvalidArgument(
        Arg(name).Is(std::to_string(static_cast<int>(value))) +
        (band ? ", want none (0), right-down causal (3) or band (4)" : ", want none (0) or right-down causal (3)"));
  };
  FA_RETURN_IF_ERROR(mask("ori_mask", options_.ori_mask, true));
  FA_RETURN_IF_ERROR(mask("cmp_mask", options_.cmp_mask, false));
  if (ori_.listed() && options_.ori_mask != SparseMask::kNone) {
    return Status::InvalidArgument(Arg("ori_mask").Is(std::to_string(static_cast<int>(options_.ori_mask))) +
                                   ", want none (0) with " + Arg("ori_indices"));
  }
  if (!std::isinf(options_.lse_without_keys)) {
    return Status::InvalidArgument(Arg("lse_without_keys").Is(Text(options_.lse_without_keys)) + ", want -inf or inf");
  }
  if (!options_.ori_indices_are_slots) return Status::Ok();
  if (!ori_.listed()) return UnwantedWithout("ori_indices_are_slots", "ori_indices");
  return ori_.table.data != nullptr ? Status::Ok() : UnwantedWithout("ori_indices_are_slots", "ori_block_table");
}

template <typename Args>
Status SharedKvBinding::BindInputs(const Args& args) {
  FA_RETURN_IF_ERROR(ori_tensors_.BindQuery("q", args.q));
  FA_RETURN_IF_ERROR(cmp_tensors_.BindQuery("q", args.q));
  if (!ori_.given() && !cmp_.given()) {
    return Status::InvalidArgument(Arg("ori_kv").Says("missing, want it or ") + Arg("cmp_kv"));
  }
  FA_RETURN_IF_ERROR(CheckOptions());
  BoundAttention& attention = bound_.attention;
  problem().dtype = args.q.dtype;
  problem().heads = q().heads();
  problem().heads_kv = 1;
  problem().d = problem().dv = q().head_size();
  attention.q = SparseRowsOf(args.q, packed());
  attention.selected_keys = true;
  bound_.check_indices = options_.check_indices;
  tiling::SharedKeys& keys = bound_.shared.emplace();
  keys.first_mask = options_.ori_mask;
  keys.second_mask = options_.cmp_mask;
  keys.left = std::min(options_.window_left, kMostTokensOfWindow);
  keys.right = std::min(options_.window_right, kMostTokensOfWindow);
  keys.ratio = options_.cmp_ratio;
  FA_RETURN_IF_ERROR(BindRowFormat());
  FA_RETURN_IF_ERROR(BindRange(ori_, ori_tensors_,
                               {.k = &bound_.k,
                                .topk_length = &parts_.ori_topk_length,
                                .lists = &bound_.lists,
                                .paged = &bound_.paged,
                                .table = &bound_.table,
                                .entries = &keys.first_entries}));
  // If entries are rows of pages, sorting them would let the order of sums depend on where pages lie.
  bound_.lists.sorted = !options_.ori_indices_are_slots;
  FA_RETURN_IF_ERROR(BindRange(cmp_, cmp_tensors_,
                               {.k = &bound_.second.k,
                                .topk_length = &parts_.cmp_topk_length,
                                .lists = &bound_.second.lists,
                                .paged = &bound_.second.paged,
                                .table = &bound_.second.table,
                                .entries = &keys.second_entries}));
  const auto scale = BindSparseScale(options_.scale ? &*options_.scale : nullptr, problem().d);
  if (!scale.ok()) return scale.status();
  attention.scale = *scale;
  attention.has_sink = args.sink.data != nullptr;
  if (attention.has_sink) {
    FA_RETURN_IF_ERROR(ori_tensors_.CheckHeadValues("sink", args.sink, {q().heads(), {"q", q().leading()}}));
  }
  return BindSequences(args.cu_q, args.used_q, args.cmp_residual);
}

Status SharedKvBinding::BindRowFormat() {
  const SharedKvRowFormat& format = options_.row_format;
  const auto wrong = [](const char* name, int64_t got, const std::string& want) {
    return Status::InvalidArgument(Arg(name).Is(std::to_string(got)) + ", want " + want);
  };
  if (format.tile < 0) return wrong("row_format.tile", format.tile, "at least 0");
  const int64_t most = format.tile == 0 ? 0 : problem().d - 1;
  if (format.rope < 0 || format.rope > most) {
    return wrong("row_format.rope", format.rope, most == 0 ? "0" : "0.." + std::to_string(most));
  }
  if (format.tile == 0) return Status::Ok();
  const int64_t numbers = problem().d - format.rope;
  const int64_t numbers_at = format.rope * static_cast<int64_t>(SizeOf(problem().dtype));
  bound_.quantized = QuantizedRow{.dtype = DType::kF8E4M3,
                                  .columns = numbers,
                                  .tile = std::min(format.tile, numbers),
                                  .scale = RowScale::kE8M0,
                                  .rope_type = problem().dtype,
                                  .rope = format.rope,
                                  .numbers_at = numbers_at,
                                  .rope_at = 0,
                                  .scales_at = numbers_at + numbers};
  return Status::Ok();
}

Status SharedKvBinding::BindRange(const KeyRangeArgs& range, SparseTensors& tensors, const RangeParts& to) {
  to.k->dtype = problem().dtype;
  if (!range.given()) {
    for (const auto& [name, tensor] : {std::pair{range.name.indices, &range.indices},
                                       {range.name.topk_length, &range.topk_length},
                                       {range.name.table, &range.table}}) {
      if (tensor->data != nullptr) return UnwantedWithout(name, range.name.kv);
    }
    return Status::Ok();
  }
  FA_RETURN_IF_ERROR(tensors.BindBlockTable(range.table, range.name.table));
  WantedSize columns = Columns();
  if (bound_.quantized) {
    const int64_t least = bound_.quantized->Bytes(), bytes = LastSize(range.kv);
    if (bytes < least) {
      return WrongSize(range.name.kv, range.kv.shape.rank() - 1, bytes,
                       "want at least " + std::to_string(least) + " bytes per row");
    }
    columns = {bytes, {"bytes per row"}};
  }
  FA_RETURN_IF_ERROR(tensors.BindKey(range.name.kv, range.kv, {1, {"one key head"}}, columns,
                                     bound_.quantized ? DType::kF8E4M3 : problem().dtype));
  *to.paged = tensors.paged();
  if (*to.paged) *to.table = tensors.PagesOf(range.table);
  *to.k = SparseRowsOf(range.kv, packed() && !*to.paged);
  if (!range.listed()) {
    return range.topk_length.data == nullptr ? Status::Ok()
                                             : UnwantedWithout(range.name.topk_length, range.name.indices);
  }
  FA_RETURN_IF_ERROR(tensors.CheckIndices(range.indices, range.name.indices));
  *to.lists = KeyLists(range.indices, packed(), 1);
  to.lists->whole = true;
  *to.entries = to.lists->entries;
  if (range.topk_length.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(
      tensors.CheckQuerySide(range.name.topk_length, range.topk_length, DType::kI32, {{1, {"one length per token"}}}));
  *to.topk_length = SparseValuesOf(range.topk_length, packed());
  return Status::Ok();
}

Result<SparseSequences> SharedKvBinding::SequencesOf(const KeyRangeArgs& range, const SparseTensors& tensors,
                                                     std::span<const int64_t> cu_q,
                                                     std::span<const int64_t> used_q) const {
  const bool sums_of_keys = packed() && !tensors.paged();
  const auto sums_only = [](const char* name, std::span<const int64_t> cu, bool sums, const char* where) -> Status {
    if (cu.empty() || sums) return Status::Ok();
    return Status::InvalidArgument(Arg(name).Says("given, want none ") + where);
  };
  FA_RETURN_IF_ERROR(sums_only("cu_q", cu_q, packed(), "in layout BSND"));
  FA_RETURN_IF_ERROR(
      sums_only(range.name.cu, range.cu, sums_of_keys, packed() ? "for keys in pages" : "in layout BSND"));
  auto sequences = BindSparseSequences({.layout = options_.layout,
                                        .paged = tensors.paged(),
                                        .batch = tensors.batch(),
                                        .q_rows = tensors.q_rows(),
                                        .k_rows = tensors.k_rows(),
                                        .lengths_q = packed() ? cu_q : used_q,
                                        .lengths_kv = sums_of_keys ? range.cu : range.used,
                                        .mask = SparseMask::kNone,
                                        .k_name = range.name.kv,
                                        .lengths_q_name = packed() ? "cu_q" : "used_q",
                                        .lengths_kv_name = sums_of_keys ? range.name.cu : range.name.used,
                                        .table_name = range.name.table});
  if (!sequences.ok()) return sequences.status();
  std::vector<SparseSequence>& list = sequences->list;
  if (tensors.paged() && std::ssize(list) != tensors.batch()) {
    return Status::InvalidArgument(Arg(range.name.table, ".shape", At(0)).Is(std::to_string(tensors.batch())) +
                                   ", want " + std::to_string(list.size()) + " (" + Arg("cu_q") + ")");
  }
  const int64_t count = std::ssize(list);
  FA_RETURN_IF_ERROR(CheckNumbers("used_q", used_q, count, [&](size_t b) { return list[b].sq; }));
  FA_RETURN_IF_ERROR(CheckNumbers(range.name.used, range.used, count, [&](size_t b) { return list[b].sk; }));
  sequences->tokens = 0;
  for (size_t b = 0; b < list.size(); ++b) {
    if (!used_q.empty()) list[b].sq = used_q[b];
    if (!range.used.empty()) list[b].sk = range.used[b];
    list[b].first_token = sequences->tokens;
    sequences->tokens += list[b].sq;
  }
  return sequences;
}

Status SharedKvBinding::BindSequences(std::span<const int64_t> cu_q, std::span<const int64_t> used_q,
                                      std::span<const int64_t> residual) {
  tiling::SharedKeys& keys = *bound_.shared;
  Result<SparseSequences> first{SparseSequences{}}, second{SparseSequences{}};
  for (const auto& [range, tensors, to] :
       {std::tuple{&ori_, &ori_tensors_, &first}, std::tuple{&cmp_, &cmp_tensors_, &second}}) {
    if (range->given()) {
      *to = SequencesOf(*range, *tensors, cu_q, used_q);
      if (!to->ok()) return to->status();
    } else if (!range->cu.empty()) {
      return UnwantedWithout(range->name.cu, range->name.kv);
    } else if (!range->used.empty()) {
      return UnwantedWithout(range->name.used, range->name.kv);
    }
  }
  SparseSequences& sequences = bound_.sequences;
  sequences = ori_.given() ? *first : *second;
  sequences.k_rows = ori_.given() ? first->k_rows : 0;
  sequences.second_rows = cmp_.given() ? second->k_rows : 0;
  sequences.max_sk = 0;
  const int64_t count = std::ssize(sequences.list);
  FA_RETURN_IF_ERROR(CheckNumbers("cmp_residual", residual, count, [](size_t) { return kMostTokensOfWindow; }));
  const int64_t slots = core::SaturatedProduct(bound_.table.pages, bound_.table.page_rows);
  for (size_t b = 0; b < sequences.list.size(); ++b) {
    SparseSequence& sequence = sequences.list[b];
    const int64_t own = ori_.given() ? first->list[b].sk : 0;
    sequence.second = cmp_.given() ? second->list[b].sk : 0;
    sequence.second_offset = cmp_.given() ? second->list[b].k_offset : 0;
    if (!ori_.given()) sequence.k_offset = 0;
    sequence.positions = ori_.given() ? own : sequence.second * keys.ratio + (residual.empty() ? 0 : residual[b]);
    const int64_t in_first = options_.ori_indices_are_slots ? slots : own;
    FA_RETURN_IF_ERROR(CheckKeyCount("ori_kv", static_cast<int64_t>(b), in_first));
    sequence.sk = in_first + sequence.second;
    FA_RETURN_IF_ERROR(CheckKeyCount(cmp_.given() ? "cmp_kv" : "ori_kv", static_cast<int64_t>(b), sequence.sk));
    keys.most_first = std::max(keys.most_first, in_first);
    keys.most_second = std::max(keys.most_second, sequence.second);
    sequences.max_sk = std::max(sequences.max_sk, sequence.sk);
    problem().sequences.push_back({.sq = sequence.sq,
                                   .sk = sequence.sk,
                                   .q_offset = sequence.q_offset,
                                   .k_offset = sequence.k_offset,
                                   .rule = {}});
  }
  if (options_.ori_indices_are_slots) {
    parts_.every_page.resize(static_cast<size_t>(bound_.table.pages));
    std::iota(parts_.every_page.begin(), parts_.every_page.end(), 0);
    bound_.table.row = 0;
  }
  for (const auto& [name, values] : {std::pair{"cu_q", cu_q},
                                     {"cu_ori", ori_.cu},
                                     {"cu_cmp", cmp_.cu},
                                     {"used_q", used_q},
                                     {"used_ori", ori_.used},
                                     {"used_cmp", cmp_.used},
                                     {"cmp_residual", residual}}) {
    parts_.lengths.emplace_back(name, std::vector<int64_t>(values.begin(), values.end()));
  }
  return Status::Ok();
}

Status SharedKvBinding::BindLse(const TensorView& lse, layout::Stats& to) const {
  FA_RETURN_IF_ERROR(q().CheckStatistic("lse", lse, 1, q().heads()));
  to = SparseStatisticOf(lse, packed());
  return Status::Ok();
}

Status SharedKvBinding::BindForward(const SharedKvArgs& args) {
  FA_RETURN_IF_ERROR(q().CheckQueryOutput("out", args.out, problem().dtype, {Heads(), Columns()}));
  BoundAttention& attention = bound_.attention;
  attention.out = SparseRowsOf(args.out, packed());
  attention.lse_without_keys = options_.lse_without_keys;
  attention.has_lse = args.lse.data != nullptr;
  if (!attention.has_lse) return Status::Ok();
  FA_RETURN_IF_ERROR(BindLse(args.lse, attention.lse));
  return CheckWritable("lse", args.lse);
}

/// Binds the means of the probabilities of a range's keys: one per entry of a list or, without a list, per key.
Status SharedKvBinding::BindMean(const char* name, const MutableTensorView& tensor, const KeyRangeArgs& range,
                                 int64_t entries, BoundMean& mean) const {
  if (tensor.data == nullptr) return Status::Ok();
  if (!range.given()) return UnwantedWithout(name, range.name.kv);
  const int last = LastQuery();
  SizeSource source{range.name.indices, last};
  if (!range.listed()) {
    int64_t most = 0;
    for (const SparseSequence& sequence : bound_.sequences.list) {
      most = std::max(most, &range == &ori_ ? sequence.first() : sequence.second);
    }
    entries = tensor.shape.rank() == last + 1 ? tensor.shape[last] : most;
    if (entries < most) {
      return WrongSize(name, last, entries, "want at least " + std::to_string(most) + " (keys in use)");
    }
    source = {"keys"};
  }
  FA_RETURN_IF_ERROR(q().CheckQueryOutput(name, tensor, DType::kF32, {{1, {"one list per token"}}, {entries, source}}));
  mean = {.rows = SparseValuesOf(tensor, packed()), .entries = entries, .given = true};
  return Status::Ok();
}

Status SharedKvBinding::BindBackward(const SharedKvGradArgs& args, BoundSparseGrad& grad) {
  const DType dtype = problem().dtype;
  BoundAttention& attention = bound_.attention;
  FA_RETURN_IF_ERROR(BindLse(args.lse, grad.lse));
  grad.has_gradients = args.dq.data != nullptr;
  grad.has_dsink = args.dsink.data != nullptr;
  FA_RETURN_IF_ERROR(BindMean("ori_l1_norm", args.ori_l1_norm, ori_, bound_.lists.entries, grad.first_mean));
  FA_RETURN_IF_ERROR(BindMean("cmp_l1_norm", args.cmp_l1_norm, cmp_, bound_.second.lists.entries, grad.second_mean));
  if (!grad.has_gradients) {
    for (const auto& [name, tensor] :
         {std::pair{"d_ori_kv", &args.d_ori_kv}, {"d_cmp_kv", &args.d_cmp_kv}, {"dsink", &args.dsink}}) {
      if (tensor->data != nullptr) return UnwantedWithout(name, "dq");
    }
    if (grad.has_means()) return Status::Ok();
    return Status::InvalidArgument(Arg("dq").Says("missing, want it, ") + Arg("ori_l1_norm") + " or " +
                                   Arg("cmp_l1_norm"));
  }
  for (const auto& [name, tensor] : {std::pair{"out", &args.out}, {"d_out", &args.d_out}}) {
    if (tensor->data == nullptr) return WantedWith(name, "dq");
    FA_RETURN_IF_ERROR(q().CheckQuerySide(name, *tensor, dtype, {Heads(), Columns()}));
  }
  attention.out = SparseRowsOf(args.out, packed());
  grad.d_out = SparseRowsOf(args.d_out, packed());
  FA_RETURN_IF_ERROR(q().CheckQueryOutput("dq", args.dq, dtype, {Heads(), Columns()}));
  grad.dq = SparseRowsOf(args.dq, packed());
  const auto bind_keys = [&](const char* name, const MutableTensorView& tensor, const KeyRangeArgs& range,
                             const SparseTensors& tensors, layout::Rows* to) -> Status {
    if (tensor.data == nullptr) return Status::Ok();
    if (!range.given()) return UnwantedWithout(name, range.name.kv);
    FA_RETURN_IF_ERROR(tensors.CheckKeyOutput(name, tensor, dtype, {{1, {"one key head"}}, Columns()}));
    *to = SparseRowsOf(tensor, packed());
    return Status::Ok();
  };
  FA_RETURN_IF_ERROR(bind_keys("d_ori_kv", args.d_ori_kv, ori_, ori_tensors_, &grad.dk));
  FA_RETURN_IF_ERROR(bind_keys("d_cmp_kv", args.d_cmp_kv, cmp_, cmp_tensors_, &grad.second_dk));
  if (!grad.has_dsink) return Status::Ok();
  if (!attention.has_sink) return UnwantedWithout("dsink", "sink");
  FA_RETURN_IF_ERROR(q().CheckHeadValues("dsink", args.dsink, Heads()));
  return CheckWritable("dsink", args.dsink);
}

}  // namespace

Result<BoundSharedKv> BindSharedKv(const SharedKvArgs& args, const SharedKvOptions& options) {
  Result<BoundSharedKv> result{BoundSharedKv{}};
  const KeyRangeArgs ori = OriginalKeys(args), cmp = CompressedKeys(args);
  SharedKvBinding binding(ori, cmp, options, *result, result->parts);
  FA_RETURN_IF_ERROR(binding.BindInputs(args));
  FA_RETURN_IF_ERROR(binding.BindForward(args));
  result->planned = KeepPlanned(TensorsOf(args));
  return result;
}

Result<BoundSharedKvGrad> BindSharedKvGrad(const SharedKvGradArgs& args, const SharedKvOptions& options) {
  Result<BoundSharedKvGrad> result{BoundSharedKvGrad{}};
  const KeyRangeArgs ori = OriginalKeys(args), cmp = CompressedKeys(args);
  if (options.row_format.tile != 0) {
    return Status::InvalidArgument(Arg("row_format.tile").Is(std::to_string(options.row_format.tile)) +
                                   ", want 0: quantised keys have no gradient");
  }
  SharedKvBinding binding(ori, cmp, options, result->forward, result->parts);
  FA_RETURN_IF_ERROR(binding.BindInputs(args));
  FA_RETURN_IF_ERROR(binding.BindBackward(args, *result));
  result->forward.planned = KeepPlanned(TensorsOf(args));
  return result;
}

}  // namespace fa::ops
