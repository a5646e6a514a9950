// A fused inference is bound as an equivalent decode. What a decode lacks is translated here: the modes of masks, left
// padding, a prefix, and forms of dense masks and sinks.
#include "ops/inference/bind_infer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

using layout::FilledStride;

/// A fused inference while it is bound.
struct InferBinding {
  const InferAttentionArgs& args;
  const InferAttentionOptions& options;
  BoundInfer& bound;
  layout::Axes axes;
  // The equivalent decode.
  DecodeAttentionArgs decode;
  DecodeAttentionOptions decode_options = {};
  FusedDecode fused = {};

  [[nodiscard]] bool packed() const { return layout::IsPacked(options.layout); }
  [[nodiscard]] bool paged() const { return args.block_table.data != nullptr; }
  [[nodiscard]] bool has_rope() const { return args.q_rope.data != nullptr; }
  /// Returns the size of q's dimension S, or 0 if q does not have the layout's number of dimensions.
  [[nodiscard]] int64_t q_rows() const { return args.q.shape.rank() == axes.rank ? args.q.shape[axes.seq] : 0; }
};

ErrorText Wants(const ErrorText& argument, const Words& want) { return argument + ", want " + want.text; }

Status Refuse(const char* name, const ErrorText& why) {
  return Status::InvalidArgument(Arg(name).Says("given, want none (") + why + ")");
}

Status CheckOptions(const InferBinding& call) {
  const InferAttentionOptions& options = call.options;
  if (options.layout > Layout::kNTD_TND || options.layout == Layout::kSBH) {
    const std::string got = options.layout == Layout::kSBH ? "SBH" : std::to_string(static_cast<int>(options.layout));
    return Status::InvalidArgument(Wants(Arg("layout").Is(got),
                                         "BSH, BSND, BNSD, TND, NTD, NSD, BNSD_BSND, BSH_BNSD, "
                                         "BSND_BNSD, BSH_NBSD, BSND_NBSD, BNSD_NBSD, TND_NTD "
                                         "or NTD_TND"));
  }
  const int64_t mode = options.sparse_mode;
  if ((mode < 0 || mode > 4) && mode != 9) {
    return Status::InvalidArgument(Wants(Arg("sparse_mode").Is(std::to_string(mode)), "0..4 or 9"));
  }
  for (const auto& [name, size] : {std::pair{"heads_kv", options.heads_kv}, {"block_size", options.block_size}}) {
    if (size < 0) return Status::InvalidArgument(Wants(Arg(name).Is(std::to_string(size)), ">= 0"));
  }
  if (!std::isinf(options.lse_without_keys)) {
    return Status::InvalidArgument(Wants(Arg("lse_without_keys").Is(Text(options.lse_without_keys)), "-inf or inf"));
  }
  if (!call.args.cu_kv.empty() && call.paged()) return Refuse("cu_kv", Arg("block_table").Says("given"));
  return Status::Ok();
}

// Returns whether the NPU ignores the band of mode 0 and the triangle of modes 2 and 3: dimension S of q is 1, and
// q_rope is absent.
bool IgnoresRules(const InferBinding& call) { return !call.packed() && !call.has_rope() && call.q_rows() == 1; }

// Sets the causal mask or band that modes 2 to 4 stand for. The tensor dense_mask is checked, but not applied.
Status TakeCompressedMask(InferBinding& call) {
  const TensorView& mask = call.args.dense_mask;
  const int64_t mode = call.options.sparse_mode;
  const bool keeps_all = IgnoresRules(call);
  Mask rule = mode == 4   ? Mask::Band(call.options.pre, call.options.next)
              : keeps_all ? Mask::None()
              : mode == 2 ? Mask::CausalTopLeft()
                          : Mask::Causal();
  call.decode_options.mask = std::move(rule);
  if (mask.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckCompressedMask(mask, mode));
  call.bound.compressed_mask_mode = mode;
  call.decode.dense_mask = {};
  return Status::Ok();
}

Status TakeMask(InferBinding& call) {
  const int64_t mode = call.options.sparse_mode;
  if (call.args.pair_mask != nullptr) {
    if (call.args.q_padding.data != nullptr) return Refuse("pair_mask", Arg("q_padding").Says("given"));
    if (call.args.kv_padding.data != nullptr) return Refuse("pair_mask", Arg("kv_padding").Says("given"));
    if (mode == 9) return Refuse("pair_mask", Arg("sparse_mode") + " 9");
  }
  if (mode >= 2 && mode <= 4) return TakeCompressedMask(call);
  const TensorView& mask = call.args.dense_mask;
  if (mode == 9) {
    call.decode.dense_mask = {};
    if (mask.data != nullptr) return Status::Ok();
    return Status::InvalidArgument(Arg("dense_mask").Says("missing (") + Arg("sparse_mode") + " 9)");
  }
  // With left padding the NPU ignores the band of mode 0.
  const bool padded = call.args.q_padding.data != nullptr || call.args.kv_padding.data != nullptr;
  const bool has_mask = mask.data != nullptr || call.args.pair_mask != nullptr;
  if (mode == 0 && has_mask && !padded && !IgnoresRules(call)) {
    call.decode_options.mask = Mask::BandTopLeft(call.options.pre, call.options.next);
  }
  // If q has one row per batch element, the mask may be [B, Sk].
  if (mask.shape.rank() != 2 || call.packed() || call.q_rows() != 1) return Status::Ok();
  const Dims stride = FilledStride(mask.shape, mask.stride);
  call.decode.dense_mask.shape = {mask.shape[0], 1, 1, mask.shape[1]};
  call.decode.dense_mask.stride = {stride[0], 0, 0, stride[1]};
  return Status::Ok();
}

Status CheckPadding(const InferBinding& call, const char* name, const TensorView& padding, const char* lengths,
                    bool has_lengths) {
  if (padding.data == nullptr) return Status::Ok();
  if (padding.dtype != DType::kI64) return WrongType(name, padding.dtype, "i64");
  FA_RETURN_IF_ERROR(CheckView(name, padding));
  if (padding.shape != Dims{1}) {
    return Status::InvalidArgument(Wants(Arg(name, ".shape").Is(Text(padding.shape)), "[1]"));
  }
  if (call.paged()) return Refuse(name, Arg("block_table").Says("given"));
  if (call.packed()) return Refuse(name, Arg("layout") + " " + Name(call.options.layout));
  if (call.args.k_prefix.data != nullptr) return Refuse(name, Arg("k_prefix").Says("given"));
  if (has_lengths) return Status::Ok();
  return Status::InvalidArgument(Arg(lengths).Says("missing (") + Arg(name) + " is given)");
}

// Refuses a prefix in the calls in which the NPU refuses a prefix.
Status CheckPrefixPlace(const InferBinding& call) {
  if (call.paged()) return Refuse("k_prefix", Arg("block_table").Says("given"));
  if (call.packed()) return Refuse("k_prefix", Arg("layout") + " " + Name(call.options.layout));
  if (call.has_rope()) return Refuse("k_prefix", Arg("q_rope").Says("given"));
  if (call.args.q.dtype == DType::kI8) return Refuse("k_prefix", Arg("q", ".dtype") + " is i8");
  if (call.args.k.size() != 1) return Refuse("k_prefix", Arg("k").Has(std::to_string(call.args.k.size()) + " tensors"));
  return Status::Ok();
}

Status CheckPrefixTensor(const InferBinding& call, const char* name, const TensorView& prefix, const char* own_name,
                         const TensorView& own) {
  const layout::Axes& axes = call.axes;
  if (SizeOf(own.dtype) == 0) return Status::Ok();  // the decode refuses own.dtype
  if (prefix.dtype != own.dtype) return WrongType(name, prefix.dtype, TypeOf(own_name, own.dtype));
  if (prefix.shape.rank() != axes.rank) {
    return Status::InvalidArgument(
        Wants(Arg(name, ".shape").Is(Text(prefix.shape)),
              std::to_string(axes.rank) + " dimensions (" + Name(call.options.layout) + ")"));
  }
  FA_RETURN_IF_ERROR(CheckView(name, prefix));
  if (own.shape.rank() != axes.rank) return Status::Ok();  // the decode refuses own.shape
  for (int dim = 0; dim < axes.rank; ++dim) {
    if (dim == axes.seq) continue;
    if (dim == axes.batch) {
      FA_RETURN_IF_ERROR(CheckSize(name, prefix, dim, 1, {"one prefix for all elements"}));
    } else {
      FA_RETURN_IF_ERROR(CheckSize(name, prefix, dim, own.shape[dim], {own_name, dim}));
    }
  }
  return Status::Ok();
}

Status TakePrefix(InferBinding& call) {
  const TensorView &k = call.args.k_prefix, &v = call.args.v_prefix;
  const std::span<const int64_t> length = call.args.length_prefix;
  if ((k.data == nullptr) != (v.data == nullptr)) {
    const bool has_k = k.data != nullptr;
    return Status::InvalidArgument(Arg(has_k ? "v_prefix" : "k_prefix").Says("missing (") +
                                   Arg(has_k ? "k_prefix" : "v_prefix") + " is given)");
  }
  if (k.data == nullptr) {
    return length.empty() ? Status::Ok() : Refuse("length_prefix", Arg("k_prefix").Says("missing"));
  }
  FA_RETURN_IF_ERROR(CheckPrefixPlace(call));
  if (call.args.v.size() != 1) return Status::Ok();  // the decode refuses v
  FA_RETURN_IF_ERROR(CheckPrefixTensor(call, "k_prefix", k, "k", call.args.k[0]));
  FA_RETURN_IF_ERROR(CheckPrefixTensor(call, "v_prefix", v, "v", call.args.v[0]));
  const int seq = call.axes.seq;
  const int64_t rows = k.shape[seq];
  FA_RETURN_IF_ERROR(CheckSize("v_prefix", v, seq, rows, {"k_prefix", seq}));
  if (length.size() > 1) {
    return Status::InvalidArgument(Wants(Arg("length_prefix").Has(std::to_string(length.size())) + " entries", "1"));
  }
  if (!length.empty() && (length[0] < 0 || length[0] > rows)) {
    return Status::InvalidArgument(
        Wants(Arg("length_prefix", {}, At(0)).Is(std::to_string(length[0])),
              "0.." + std::to_string(rows) + " (" + Arg("k_prefix", ".shape", At(seq)) + ")"));
  }
  call.bound.prefix_rows = call.fused.prefix_rows = length.empty() ? rows : length[0];
  call.bound.length_prefix.assign(length.begin(), length.end());
  return Status::Ok();
}

// The dense forward takes sinks per row, but a fused inference does not. A sink of 16 bits is widened in a run.
Status TakeSink(InferBinding& call) {
  TensorView& sink = call.decode.sink;
  if (sink.data == nullptr) return Status::Ok();
  if (sink.shape.rank() != 1) {
    return Status::InvalidArgument(Wants(Arg("sink", ".shape").Is(Text(sink.shape)), "[N]"));
  }
  if (sink.dtype == DType::kF32 || SizeOf(call.args.q.dtype) == 0) return Status::Ok();  // the decode refuses such a q
  if (sink.dtype != call.args.q.dtype || sink.dtype > DType::kBF16) {
    return WrongType("sink", sink.dtype, "f32 or " + TypeOf("q", call.args.q.dtype));
  }
  FA_RETURN_IF_ERROR(CheckView("sink", sink, /*any_innermost=*/true));
  call.bound.widens_sink = true;
  sink.dtype = DType::kF32;
  sink.stride = {};
  return Status::Ok();
}

// Refuses scales per key with a prefix or left padding. Key 0 is then not row 0 of the tensor of keys, and the NPU's
// documentation does not say which scale belongs to which key.
Status CheckScalesPerKey(const InferBinding& call) {
  const KeyStorage& storage = call.bound.decode.storage;
  if (!storage.k_antiquants.per_row && !storage.v_antiquants.per_row) return Status::Ok();
  const char* name = call.bound.prefix_rows > 0 ? "k_prefix" : "kv_padding";
  if (call.bound.prefix_rows == 0 && call.args.kv_padding.data == nullptr) return Status::Ok();
  const char* scale = call.args.antiquant_scale.data != nullptr ? "antiquant_scale"
                      : storage.k_antiquants.per_row            ? "k_scale"
                                                                : "v_scale";
  return Refuse(name, Arg(scale).Says("one per key"));
}

// Binds the offsets of rows in use for a left padding of 0: the rows in use are then the last rows of the tensors. A
// run reads the padding and moves the tensors' addresses by it.
void BindPaddedRows(InferBinding& call) {
  BoundInfer& bound = call.bound;
  BoundAttention& attention = bound.decode.attention;
  bound.pads_q = call.args.q_padding.data != nullptr;
  bound.pads_kv = call.args.kv_padding.data != nullptr;
  if (!bound.pads_q && !bound.pads_kv) return;
  bound.absolute_mask = call.options.sparse_mode <= 1;
  bound.kv_rows = call.args.k[0].shape[call.axes.seq];
  std::vector<tiling::Sequence>& sequences = attention.problem.sequences;
  for (size_t b = 0; b < sequences.size(); ++b) {
    tiling::Sequence& sequence = sequences[b];
    if (bound.pads_q) sequence.q_offset = bound.q_rows - sequence.sq;
    if (bound.pads_kv) sequence.k_offset = bound.kv_rows - sequence.sk;
    const auto move = [&](PairRows& pairs) {
      pairs.sequences[b].offset += sequence.q_offset * pairs.sequences[b].row + sequence.k_offset;
    };
    if (attention.has_pse) move(attention.pse);
    if (attention.has_dense_mask && bound.absolute_mask) move(attention.dense_mask);
  }
}

Status TreeShape(const InferBinding& call, const Words& want) {
  return Status::InvalidArgument(Wants(Arg("dense_mask", ".shape").Is(Text(call.args.dense_mask.shape)), want) + " (" +
                                 Arg("sparse_mode") + " 9)");
}

// Binds the masks of mode 9. In a run, each becomes a dense mask of all keys of its sequence.
Status BindTree(InferBinding& call) {
  if (call.options.sparse_mode != 9) return Status::Ok();
  const TensorView& mask = call.args.dense_mask;
  BoundAttention& attention = call.bound.decode.attention;
  FA_RETURN_IF_ERROR(CheckMaskTensor(mask));
  const std::vector<tiling::Sequence>& sequences = attention.problem.sequences;
  const auto batch = static_cast<int64_t>(sequences.size());
  const Dims stride = FilledStride(mask.shape, mask.stride);
  const int64_t sq = call.q_rows();
  if (!call.packed() && mask.shape != Dims{batch, sq, sq}) return TreeShape(call, Text(Dims{batch, sq, sq}));
  if (call.packed() && mask.shape.rank() != 1) return TreeShape(call, "[sum(Sq * Sq)]");
  TreeMasks& tree = call.bound.tree;
  attention.dense_mask = {.dtype = DType::kU8, .sequences = {}};
  int64_t from = 0, to = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const tiling::Sequence& sequence = sequences[static_cast<size_t>(b)];
    if (sequence.sk < sequence.sq) {
      const char* lengths = call.packed() && !call.paged() ? "cu_kv" : "lengths_kv";
      return Status::InvalidArgument(Arg(lengths, {}, At(b)).Says("want at least as many keys as queries (Sq=") +
                                     std::to_string(sequence.sq) + ", Sk=" + std::to_string(sequence.sk) + ", " +
                                     Arg("sparse_mode") + " 9)");
    }
    tree.sequences.push_back({.from = call.packed() ? from : b * stride[0],
                              .row = call.packed() ? sequence.sq : stride[1],
                              .to = to,
                              .rows = sequence.sq,
                              .keys = sequence.sk});
    // The row stride is at least 1, because a stride of 0 would mean that all query rows share one row of the mask.
    attention.dense_mask.sequences.push_back({.offset = to, .head = 0, .row = std::max<int64_t>(sequence.sk, 1)});
    from += sequence.sq * sequence.sq;
    // Two sequences at one offset would count as having the same mask.
    to += std::max<int64_t>(sequence.sq * sequence.sk, 1);
  }
  if (call.packed() && mask.shape[0] != from) return TreeShape(call, "[" + std::to_string(from) + "]");
  tree.bytes = static_cast<size_t>(to);
  attention.has_dense_mask = attention.problem.dense_mask = true;
  return Status::Ok();
}

// Refuses what a call with scales per query row may not have. The decode refuses the rest.
Status CheckScaledQueries(const InferBinding& call) {
  const InferAttentionArgs& args = call.args;
  if (args.q_scale.data == nullptr) return Status::Ok();
  const std::pair<const char*, const TensorView*> refused[] = {{"q_padding", &args.q_padding},
                                                               {"kv_padding", &args.kv_padding},
                                                               {"k_prefix", &args.k_prefix},
                                                               {"v_prefix", &args.v_prefix},
                                                               {"sink", &args.sink}};
  for (const auto& [name, tensor] : refused) {
    if (tensor->data != nullptr) return Refuse(name, Arg("q_scale").Says("given"));
  }
  return Status::Ok();
}

Status Bind(InferBinding& call) {
  FA_RETURN_IF_ERROR(CheckOptions(call));
  FA_RETURN_IF_ERROR(CheckScaledQueries(call));
  const InferAttentionArgs& args = call.args;
  FA_RETURN_IF_ERROR(CheckPadding(call, "q_padding", args.q_padding, "lengths_q", !args.lengths_q.empty()));
  FA_RETURN_IF_ERROR(CheckPadding(call, "kv_padding", args.kv_padding, "lengths_kv", !args.lengths_kv.empty()));
  if (args.kv_padding.data != nullptr && args.k.size() > 1) {
    return Refuse("kv_padding", Arg("k").Has(std::to_string(args.k.size()) + " tensors"));
  }
  FA_RETURN_IF_ERROR(TakePrefix(call));
  FA_RETURN_IF_ERROR(TakeMask(call));
  FA_RETURN_IF_ERROR(TakeSink(call));
  auto decode = BindDecode(call.decode, call.decode_options, &call.fused);
  if (!decode.ok()) return decode.status();
  BoundInfer& bound = call.bound;
  bound.decode = std::move(*decode);
  BoundAttention& attention = bound.decode.attention;
  if (call.options.heads_kv > 0 && call.options.heads_kv != attention.problem.heads_kv) {
    return Status::InvalidArgument(Wants(Arg("heads_kv").Is(std::to_string(call.options.heads_kv)),
                                         std::to_string(attention.problem.heads_kv) + " (" + Arg("k") + ")"));
  }
  FA_RETURN_IF_ERROR(CheckScalesPerKey(call));
  attention.lse_without_keys = call.options.lse_without_keys;
  bound.q_rows = call.q_rows();
  bound.single_row = bound.q_rows == 1;
  BindPaddedRows(call);
  FA_RETURN_IF_ERROR(BindTree(call));
  if (bound.prefix_rows > 0) {
    bound.k_prefix = KeyRowsOf(args.k_prefix, call.axes, attention.problem.d);
    bound.v_prefix = KeyRowsOf(args.v_prefix, call.axes, attention.problem.dv);
  }
  bound.decode.planned = KeepPlanned(TensorsOf(args));
  return Status::Ok();
}

}  // namespace

Result<BoundInfer> BindInfer(const InferAttentionArgs& args, const InferAttentionOptions& options) {
  Result<BoundInfer> result{BoundInfer{}};
  InferBinding call{args, options, *result, layout::AxesOf(options.layout), args};
  call.decode_options = {
      .layout = options.layout, .heads = options.heads, .scale = options.scale, .antiquant = options.antiquant};
  call.fused = {
      .cu_kv = args.cu_kv, .block_size = options.block_size, .heads_kv = options.heads_kv, .q_scale = args.q_scale};
  result->options = options;
  FA_RETURN_IF_ERROR(Bind(call));
  return result;
}

}  // namespace fa::ops
