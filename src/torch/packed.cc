// The operators behind torch.nn.attention.varlen, which PyTorch has for other devices only: attention of packed
// sequences, also over pages, and its backward.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "tensors.h"

namespace fa::torch_kernels {
namespace {

using OptionalInt = std::optional<int64_t>;
using OptionalDouble = std::optional<double>;

/// The logsumexp of a row without keys, as flash_attn 2 and PyTorch's kernels of other devices return it.
constexpr float kEmpty = std::numeric_limits<float>::infinity();

/// The arguments of a forward under the operator's names. The tensors of prefix sums and lengths are read into vectors.
struct Call {
  const char* op;
  Tensor query, key, value;
  OptionalTensor cum_seq_q, cum_seq_k;
  int64_t max_q, max_k;
  bool is_causal;
  OptionalDouble scale;
  int64_t left, right;  ///< bounds of the window; -1: no bound
  OptionalTensor seqused_k = {}, alibi_slopes = {}, block_table = {};

  std::vector<int64_t> cu_q = {}, cu_k = {},
                       used = {};  ///< prefix sums of query and key rows, which begin with 0, and lengths

  [[nodiscard]] bool packed() const { return cum_seq_q.has_value(); }
  [[nodiscard]] size_t sequences() const { return packed() ? cu_q.size() - 1 : static_cast<size_t>(query.size(0)); }
};

std::string Indexed(std::string_view name, size_t i) { return std::string(name) + "[" + std::to_string(i) + "]"; }

/// Returns the elements of a tensor of int32 with one dimension.
std::vector<int64_t> Numbers(const char* op, std::string_view name, const Tensor& tensor) {
  CheckRank(op, name, tensor, 1, "one dimension");
  CheckType(op, name, tensor, ScalarType::Int, "");
  const Tensor dense = ::torch::stable::contiguous(tensor);
  const auto* from = static_cast<const int32_t*>(dense.data_ptr());
  return {from, from + dense.numel()};
}

/// Returns prefix sums. Throws an error unless they begin with 0, do not decrease and end within `rows` rows.
std::vector<int64_t> Sums(const char* op, std::string_view name, const Tensor& tensor, int64_t rows, int64_t longest,
                          std::string_view name_of_longest) {
  std::vector<int64_t> sums = Numbers(op, name, tensor);
  if (sums.empty() || sums[0] != 0)
    Refuse(op, Indexed(name, 0), sums.empty() ? "missing" : std::to_string(sums[0]), "0");
  int64_t most = 0;
  for (size_t i = 1; i < sums.size(); ++i) {
    if (sums[i] < sums[i - 1]) {
      Refuse(op, Indexed(name, i), std::to_string(sums[i]), "at least " + std::to_string(sums[i - 1]));
    }
    if (sums[i] > rows) Refuse(op, Indexed(name, i), std::to_string(sums[i]), "at most " + std::to_string(rows));
    most = std::max(most, sums[i] - sums[i - 1]);
  }
  if (longest < most) {
    Refuse(op, name_of_longest, std::to_string(longest),
           "at least " + std::to_string(most) + " (the longest sequence)");
  }
  return sums;
}

Mask WindowOf(int64_t left, int64_t right) {
  if (left < 0 && right < 0) return Mask::None();
  if (left < 0 && right == 0) return Mask::Causal();
  return Mask::Band(left < 0 ? Mask::kUnlimited : left, right < 0 ? Mask::kUnlimited : right);
}

/// Returns the mask of the window, limited to the keys in use. The last query row lies at the last key in use.
Mask RowsInUse(const Call& call) {
  const auto rows = static_cast<size_t>(call.query.size(0));
  std::vector<int64_t> begin(rows, 0), end(rows, 0);
  for (size_t b = 0; b < call.used.size(); ++b) {
    const int64_t used = call.used[b];
    for (int64_t row = call.cu_q[b]; row < call.cu_q[b + 1]; ++row) {
      const int64_t place = row - call.cu_q[b + 1] + used;
      const auto i = static_cast<size_t>(row);
      end[i] = call.right < 0 ? used : std::clamp<int64_t>(place + call.right + 1, 0, used);
      begin[i] = call.left < 0 ? 0 : std::clamp<int64_t>(place - call.left, 0, end[i]);
    }
  }
  return Mask::Rows(std::move(begin), std::move(end));
}

AttentionOptions OptionsOf(const Call& call) {
  AttentionOptions options;
  options.layout = call.packed() ? Layout::kTND : Layout::kBSND;
  options.mask = call.used.empty() ? WindowOf(call.left, call.right) : RowsInUse(call);
  if (call.scale) options.scale = static_cast<float>(*call.scale);
  return options;
}

/// Returns the prefix sums without the leading 0, as the library takes them. If there are no sequences, returns the 0
/// alone: it stands for one empty sequence.
std::span<const int64_t> After0(const std::vector<int64_t>& sums) {
  return std::span(sums).subspan(sums.size() > 1 ? 1 : 0);
}

/// Returns a view of packed statistics [N, T] in the library's order, [T, N]. Statistics of padded batches stay [B, N,
/// S].
MutableTensorView StatisticsOf(const Call& call, const Tensor& lse) {
  MutableTensorView view = ViewOf(lse);
  if (call.packed()) {
    view.shape = {lse.size(1), lse.size(0)};
    view.stride = {lse.stride(1), lse.stride(0)};
  }
  return view;
}

/// Returns the part of a view that begins at `row` and has `rows` rows, as [1, rows, N, D].
template <typename View>
View RowsOf(const View& view, int64_t row, int64_t rows) {
  View part = view;
  const auto bytes = static_cast<int64_t>(SizeOf(view.dtype));
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const char, char>;
  part.data = static_cast<Byte*>(view.data) + row * view.stride[0] * bytes;
  part.shape = {1, rows, view.shape[1], view.shape[2]};
  part.stride = {0, view.stride[0], view.stride[1], view.stride[2]};
  return part;
}

void Attend(const Call& call, const Tensor& out, const Tensor& lse) {
  AttentionArgs args;
  args.q = ViewOf(call.query);
  args.k = ViewOf(call.key);
  args.v = ViewOf(call.value);
  args.cu_q = After0(call.cu_q);
  args.cu_kv = After0(call.cu_k);
  args.out = ViewOf(out);
  args.lse = StatisticsOf(call, lse);
  AttentionOptions options = OptionsOf(call);
  Context* context = ContextOfThread();
  if (!call.alibi_slopes) return Check(call.op, FlashAttention(args, options, context));
  const Tensor slopes = Readable(*call.alibi_slopes);
  args.pse = ViewOf(slopes);
  options.pse_type = PseType::kSlopes;
  if (!call.packed()) {
    options.q_start = call.key.size(1) - call.query.size(1);
    return Check(call.op, FlashAttention(args, options, context));
  }
  // ALiBi aligns each sequence's last row with the sequence's last key, but all sequences of a call have one q_start.
  // So the library is called once per sequence.
  options.layout = Layout::kBSND;
  options.mask = WindowOf(call.left, call.right);
  for (size_t b = 0; b < call.sequences(); ++b) {
    const int64_t row = call.cu_q[b], rows = call.cu_q[b + 1] - row, key = call.cu_k[b];
    const int64_t keys = call.used.empty() ? call.cu_k[b + 1] - key : call.used[b];
    if (rows == 0) continue;
    AttentionArgs own;
    own.q = RowsOf(args.q, row, rows);
    own.k = RowsOf(args.k, key, keys);
    own.v = RowsOf(args.v, key, keys);
    own.out = RowsOf(args.out, row, rows);
    own.lse = {static_cast<float*>(args.lse.data) + row * args.lse.stride[0],
               DType::kF32,
               {1, args.lse.shape[1], rows},
               {0, args.lse.stride[1], args.lse.stride[0]}};
    own.pse = args.pse;
    if (own.pse.shape.rank() == 2) {
      own.pse.data = static_cast<const float*>(own.pse.data) + static_cast<int64_t>(b) * own.pse.stride[0];
      own.pse.shape = {args.pse.shape[1]};
      own.pse.stride = {args.pse.stride[1]};
    }
    options.q_start = keys - rows;
    Check(call.op, FlashAttention(own, options, context));
  }
}

void AttendPages(const Call& call, const Tensor& out, const Tensor& lse) {
  const TensorView keys = ViewOf(call.key), values = ViewOf(call.value);
  const Tensor table = ::torch::stable::contiguous(*call.block_table);
  DecodeAttentionArgs args;
  args.q = ViewOf(call.query);
  args.k = {&keys, 1};
  args.v = {&values, 1};
  args.cu_q = After0(call.cu_q);
  args.lengths_kv = call.used;
  args.block_table = ViewOf(table);
  args.out = ViewOf(out);
  args.lse = StatisticsOf(call, lse);
  DecodeAttentionOptions options;
  options.layout = call.packed() ? Layout::kTND : Layout::kBSND;
  options.mask = WindowOf(call.left, call.right);
  if (call.scale) options.scale = static_cast<float>(*call.scale);
  Check(call.op, DecodeAttention(args, options, ContextOfThread()));
}

/// Checks what forward and backward have in common, and reads the prefix sums.
void CheckCall(Call& call, double dropout_p) {
  const char* op = call.op;
  const ScalarType type = call.query.scalar_type();
  if (!IsServed(type)) Refuse(op, "query.dtype", NameOf(type), "torch.float32 or torch.bfloat16 or torch.float16");
  CheckNoDropout(op, dropout_p);
  const bool paged = call.block_table.has_value();
  CheckRank(op, "query", call.query, call.packed() ? 3 : 4, call.packed() ? "[total, N, D]" : "[B, S, N, D]");
  for (const auto& [name, tensor] : {std::pair{"key", &call.key}, std::pair{"value", &call.value}}) {
    const bool rows = call.packed() && !paged;
    CheckRank(op, name, *tensor, rows ? 3 : 4, rows ? "[total, N, D]" : "4 dimensions");
    CheckType(op, name, *tensor, type, " (query.dtype)");
    CheckSize(op, name, *tensor, tensor->dim() - 1, call.query.size(call.query.dim() - 1), " (columns of query)");
  }
  if (!call.packed()) {
    if (!paged && call.cum_seq_k) Refuse(op, "cum_seq_k", "a tensor", "None, as cum_seq_q is not given");
    if (!paged) CheckSize(op, "key", call.key, 0, call.query.size(0), " (query.shape[0])");
    return;
  }
  call.cu_q = Sums(op, "cum_seq_q", *call.cum_seq_q, call.query.size(0), call.max_q, "max_q");
  if (paged) return;
  if (!call.cum_seq_k) Refuse(op, "cum_seq_k", "None", "a tensor, as block_table is not given");
  CheckRank(op, "cum_seq_k", *call.cum_seq_k, 1, "one dimension");
  CheckSize(op, "cum_seq_k", *call.cum_seq_k, 0, static_cast<int64_t>(call.cu_q.size()), " (cum_seq_q.shape[0])");
  call.cu_k = Sums(op, "cum_seq_k", *call.cum_seq_k, call.key.size(0), call.max_k, "max_k");
}

/// Reads the lengths of a forward, and checks its other arguments.
void CheckForward(Call& call, bool return_debug_mask) {
  const char* op = call.op;
  if (return_debug_mask) Refuse(op, "return_debug_mask", "True", "False");
  const auto sequences = static_cast<int64_t>(call.sequences());
  if (call.seqused_k) {
    if (!call.packed() && !call.block_table) Refuse(op, "seqused_k", "a tensor", "None, as cum_seq_q is not given");
    call.used = Numbers(op, "seqused_k", *call.seqused_k);
    CheckSize(op, "seqused_k", *call.seqused_k, 0, sequences, " (sequences)");
    for (size_t b = 0; !call.block_table && b < call.used.size(); ++b) {
      const int64_t most = call.cu_k[b + 1] - call.cu_k[b];
      if (call.used[b] >= 0 && call.used[b] <= most) continue;
      Refuse(op, Indexed("seqused_k", b), std::to_string(call.used[b]), "0.." + std::to_string(most));
    }
  }
  if (call.block_table) {
    CheckType(op, "block_table", *call.block_table, ScalarType::Int, "");
    if (!call.seqused_k) {
      if (!call.cum_seq_k) Refuse(op, "seqused_k", "None", "a tensor, as block_table is given");
      const std::vector<int64_t> sums = Numbers(op, "cum_seq_k", *call.cum_seq_k);
      for (size_t b = 1; b < sums.size(); ++b) call.used.push_back(sums[b] - sums[b - 1]);
    }
    if (call.alibi_slopes) Refuse(op, "alibi_slopes", "a tensor", "None, as block_table is given");
  }
  if (call.alibi_slopes) {
    const int64_t heads = call.query.size(call.query.dim() - 2);
    const Dims shape = ShapeOf(*call.alibi_slopes);
    CheckType(op, "alibi_slopes", *call.alibi_slopes, ScalarType::Float, "");
    if (shape != Dims{heads} && shape != Dims{sequences, heads}) {
      Refuse(op, "alibi_slopes.shape", Text(shape), Text({heads}) + " or " + Text({sequences, heads}));
    }
  }
}

/// Clears the rows that belong to no sequence.
void ClearRest(const Call& call, const Tensor& written, const Tensor& lse) {
  const int64_t begin = call.cu_q.back(), total = call.query.size(0);
  const MutableTensorView out = ViewOf(written);
  const auto bytes = static_cast<int64_t>(SizeOf(out.dtype));
  auto* const first = static_cast<float*>(lse.data_ptr());
  for (int64_t n = 0; n < out.shape[1]; ++n) {
    std::fill(first + n * total + begin, first + (n + 1) * total, kEmpty);
    for (int64_t row = begin; row < total; ++row) {
      char* const at = static_cast<char*>(out.data) + (row * out.stride[0] + n * out.stride[1]) * bytes;
      std::fill_n(at, out.shape[2] * bytes, char{0});
    }
  }
}

/// Writes the output into `written`, and returns the logsumexp: [N, T] if packed, otherwise [B, N, S].
Tensor ForwardInto(Call& call, const Tensor& written) {
  call.query = Readable(call.query);
  const int64_t heads = call.query.size(call.query.dim() - 2), total = call.query.size(0);
  const int64_t rows = call.packed() ? 0 : call.query.size(1);
  Tensor lse = call.packed() ? NewTensor({heads, total}, {total, 1}, ScalarType::Float)
                             : NewTensor({total, heads, rows}, {heads * rows, rows, 1}, ScalarType::Float);
  if (call.block_table) {
    AttendPages(call, written, lse);
  } else {
    call.key = Readable(call.key);
    call.value = Readable(call.value);
    Attend(call, written, lse);
  }
  ReplaceEmptyRows(lse, kEmpty);
  if (call.packed()) ClearRest(call, written, lse);
  return lse;
}

Call CallOf(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
            const OptionalTensor& cum_seq_q, const OptionalTensor& cum_seq_k, int64_t max_q, int64_t max_k,
            bool is_causal, OptionalDouble scale, OptionalInt left, OptionalInt right) {
  return {.op = op,
          .query = query,
          .key = key,
          .value = value,
          .cum_seq_q = cum_seq_q,
          .cum_seq_k = cum_seq_k,
          .max_q = max_q,
          .max_k = max_k,
          .is_causal = is_causal,
          .scale = scale,
          .left = std::max<int64_t>(left.value_or(-1), -1),
          .right = is_causal ? 0 : std::max<int64_t>(right.value_or(-1), -1)};
}

// The kernels have the arguments of the operators.

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> Forward(Tensor query, Tensor key, Tensor value,
                                                           OptionalTensor cum_seq_q, OptionalTensor cum_seq_k,
                                                           int64_t max_q, int64_t max_k, double dropout_p,
                                                           bool is_causal, bool return_debug_mask, OptionalDouble scale,
                                                           OptionalInt left, OptionalInt right,
                                                           OptionalTensor seqused_k, OptionalTensor alibi_slopes,
                                                           OptionalTensor block_table, OptionalInt /*num_splits*/) {
  Count(kPackedForward);
  for (OptionalTensor* tensor : {&cum_seq_q, &cum_seq_k, &seqused_k, &alibi_slopes, &block_table})
    DropUndefined(*tensor);
  Call call =
      CallOf(kPackedForward, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale, left, right);
  call.seqused_k = seqused_k;
  call.alibi_slopes = alibi_slopes;
  call.block_table = block_table;
  CheckCall(call, dropout_p);
  CheckForward(call, return_debug_mask);
  Output out(::torch::stable::empty_like(query));
  Tensor lse = ForwardInto(call, out.written());
  Tensor seed = NewTensor({2}, {1}, ScalarType::UInt64), offset = NewTensor({}, {}, ScalarType::UInt64);
  ::torch::stable::zero_(seed);
  ::torch::stable::zero_(offset);
  // The backward gets the seed, but does not get seqused_k, alibi_slopes and block_table. So a forward with one of
  // these arguments returns the seed 1, and the backward refuses seeds other than 0.
  if (seqused_k || alibi_slopes || block_table) *static_cast<uint64_t*>(seed.data_ptr()) = 1;
  return {out.Finished(), lse, seed, offset, NewTensor({0}, {1}, query.scalar_type())};
}

Tensor ForwardIntoOut(Tensor out, Tensor query, Tensor key, Tensor value, OptionalTensor cum_seq_q,
                      OptionalTensor cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p, bool is_causal,
                      bool return_debug_mask, OptionalDouble scale, OptionalInt left, OptionalInt right,
                      OptionalTensor seqused_k, OptionalTensor alibi_slopes, OptionalTensor block_table,
                      OptionalInt /*num_splits*/) {
  const char* op = kPackedForwardInto;
  Count(op);
  for (OptionalTensor* tensor : {&cum_seq_q, &cum_seq_k, &seqused_k, &alibi_slopes, &block_table})
    DropUndefined(*tensor);
  if (ShapeOf(out) != ShapeOf(query)) {
    Refuse(op, "out.shape", Text(ShapeOf(out)), Text(ShapeOf(query)) + " (query.shape)");
  }
  CheckType(op, "out", out, query.scalar_type(), " (query.dtype)");
  Call call = CallOf(op, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale, left, right);
  call.seqused_k = seqused_k;
  call.alibi_slopes = alibi_slopes;
  call.block_table = block_table;
  CheckCall(call, dropout_p);
  CheckForward(call, return_debug_mask);
  Output result(out);
  Tensor lse = ForwardInto(call, result.written());
  result.Finished();
  return lse;
}

std::tuple<Tensor, Tensor, Tensor> Backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
                                            Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, int64_t max_q,
                                            int64_t max_k, double dropout_p, bool is_causal, Tensor rng_state,
                                            Tensor /*unused*/, OptionalDouble scale, OptionalInt left,
                                            OptionalInt right) {
  const char* op = kPackedBackward;
  Count(op);
  CheckType(op, "rng_state", rng_state, ScalarType::UInt64, "");
  if (ShapeOf(rng_state) != Dims{2}) Refuse(op, "rng_state.shape", Text(ShapeOf(rng_state)), "[2]");
  const Tensor state = ::torch::stable::contiguous(rng_state);
  const auto* const numbers = static_cast<const uint64_t*>(state.data_ptr());
  if (numbers[0] != 0 || numbers[1] != 0) {
    Refuse(op, "rng_state", "[" + std::to_string(numbers[0]) + ", " + std::to_string(numbers[1]) + "]",
           "zeros: alibi_slopes, seqused_k and block_table have no backward");
  }
  const auto given = [](const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor(); };
  Call call = CallOf(op, Readable(query), Readable(key), Readable(value), given(cum_seq_q), given(cum_seq_k), max_q,
                     max_k, is_causal, scale, left, right);
  CheckCall(call, dropout_p);
  CheckType(op, "grad_out", grad_out, query.scalar_type(), " (query.dtype)");
  CheckType(op, "out", out, query.scalar_type(), " (query.dtype)");
  CheckType(op, "logsumexp", logsumexp, ScalarType::Float, "");
  CheckRank(op, "logsumexp", logsumexp, call.packed() ? 2 : 3, call.packed() ? "[N, total]" : "[B, N, S]");
  const Tensor d_out = Readable(grad_out), o = Readable(out);
  Output dq(::torch::stable::empty_like(query)), dk(::torch::stable::empty_like(key)),
      dv(::torch::stable::empty_like(value));
  // The library reads a maximum m and a sum s per row and uses m + log(s). With s = 1, m can be the logsumexp.
  static constexpr float kOne = 1;
  AttentionGradArgs args;
  args.q = ViewOf(call.query);
  args.k = ViewOf(call.key);
  args.v = ViewOf(call.value);
  args.cu_q = After0(call.cu_q);
  args.cu_kv = After0(call.cu_k);
  args.out = ViewOf(o);
  args.d_out = ViewOf(d_out);
  args.softmax_max = StatisticsOf(call, logsumexp);
  args.softmax_sum = {&kOne, DType::kF32, args.softmax_max.shape, {}};
  for (int i = 0; i < args.softmax_max.shape.rank(); ++i) args.softmax_sum.stride.push_back(0);
  args.dq = ViewOf(dq.written());
  args.dk = ViewOf(dk.written());
  args.dv = ViewOf(dv.written());
  Check(op, FlashAttentionGrad(args, OptionsOf(call), ContextOfThread()));
  return {dq.Finished(), dk.Finished(), dv.Finished()};
}

/// A kernel of `kArguments` arguments. Older versions of PyTorch pass fewer arguments. Then the last arguments are
/// None.
template <auto kernel, uint64_t kArguments>
void WithMissing(StableIValue* stack, uint64_t arguments, uint64_t outputs) {
  std::array<StableIValue, kArguments> all;
  // The kernel refuses arguments that it does not know.
  if (arguments > kArguments) return kernel(stack, arguments, outputs);
  std::copy_n(stack, arguments, all.begin());
  std::fill(all.begin() + arguments, all.end(), ::torch::stable::detail::from(std::nullopt));
  kernel(all.data(), kArguments, outputs);
  std::copy_n(all.begin(), outputs, stack);
}

}  // namespace

void AddPacked(::torch::stable::detail::StableLibrary& library) {
  library.impl(kPackedForward, &WithMissing<TORCH_BOX(&Forward), 17>);
  library.impl(kPackedForwardInto, &WithMissing<TORCH_BOX(&ForwardIntoOut), 18>);
  library.impl(kPackedBackward, TORCH_BOX(&Backward));
}

}  // namespace fa::torch_kernels
