#ifndef FA_OPS_BIND_PARTS_H_
#define FA_OPS_BIND_PARTS_H_

#include <cstdint>
#include <span>

#include "fa/flash_attention.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// Rows of the compressed form of the position bias.
inline constexpr int64_t kCompressedRows = 1024;

/// Sizes that the parts share besides those of BoundAttention::problem. With TND, a dimension of rows counts all packed
/// rows.
struct CallSizes {
  int64_t sequences = 0;           ///< batch elements or packed sequences
  int64_t q_rows = 0, k_rows = 0;  ///< S of query and key; T for TND
  int64_t max_sq = 0, max_sk = 0;  ///< lengths of the longest sequence
};

/// Out and the statistics are results of a forward and inputs of a backward, which needs both statistics.
enum class Direction : uint8_t { kForward, kBackward };

/// What prompt and decode attention allow that the training forward does not: lengths of padded batch elements, and a
/// dense mask and pse whose last two dimensions are larger than the call.
struct Inference {
  ActualLengths lengths;
  bool own_types = false;  ///< the operator has checked the types of query, key, value and out
};

/// The tensors of a dense call for its bind, whatever the operator calls them. Nothing is written through them. If the
/// operator has a tensor in another form, its data may be null here; its shape and strides count.
struct DenseTensors {
  const TensorView &q, &k, &v;
  const TensorView &q_rope = kNoTensor, &k_rope = kNoTensor;
  const TensorView &pse = kNoTensor, &dense_mask = kNoTensor, &drop_mask = kNoTensor, &sink = kNoTensor;
  std::span<const int64_t> cu_q = {}, cu_kv = {};
  TensorView out, softmax_max = {}, softmax_sum = {}, lse = {};

  static constexpr TensorView kNoTensor{};
};

/// The tensors that a dense call and its gradients share. For gradients they are the tensors of the differentiated
/// forward. Gradients have no lse, so it is left out.
template <typename Args>
[[nodiscard]] DenseTensors ForwardTensors(const Args& args) {
  return {.q = args.q,
          .k = args.k,
          .v = args.v,
          .q_rope = args.q_rope,
          .k_rope = args.k_rope,
          .pse = args.pse,
          .dense_mask = args.dense_mask,
          .drop_mask = args.drop_mask,
          .sink = args.sink,
          .cu_q = args.cu_q,
          .cu_kv = args.cu_kv,
          .out = args.out,
          .softmax_max = args.softmax_max,
          .softmax_sum = args.softmax_sum};
}

/// A call while it is bound. Each part checks its arguments and fills its fields of `bound`. The parts run in this
/// order.
struct Binding {
  const DenseTensors& args;
  const AttentionOptions& options;
  BoundAttention& bound;
  Direction direction = Direction::kForward;
  const Inference* inference = nullptr;  ///< null: a training operator
  CallSizes sizes = {};

  [[nodiscard]] bool packed() const { return options.layout == Layout::kTND; }
};

[[nodiscard]] Status BindScalars(Binding& call);  ///< scale, softcap, pse_type, layout, heads, starts
[[nodiscard]] Status BindShapes(Binding& call);   ///< query, key, value, rope parts, out: types, sizes, rows
[[nodiscard]] Status BindLengths(
    Binding& call);  ///< cu_q, cu_kv, actual lengths: sequences (without rules), and rows past them
[[nodiscard]] Status BindStatistics(Binding& call);  ///< softmax_max, softmax_sum, lse, sink
[[nodiscard]] Status BindMask(Binding& call);        ///< mask rules, dense_mask
[[nodiscard]] Status BindPse(Binding& call);         ///< pse, slopes
[[nodiscard]] Status BindDropout(Binding& call);     ///< drop_mask, keep_prob, seed

/// Runs all parts.
[[nodiscard]] Status BindParts(Binding& call);

/// BindAttention for a prompt or decode call. The caller sets the planned tensors.
[[nodiscard]] Result<BoundAttention> BindInference(const DenseTensors& tensors, const AttentionOptions& options,
                                                   const Inference& inference);

/// Checks one of the last two sizes of the dense mask or pse: it is `want`, or with Inference at least `want`.
[[nodiscard]] Status CheckPairSize(const Binding& call, const char* name, const TensorView& tensor, int dim,
                                   int64_t want, SizeSource source);

/// Whether the mask tensor of a sparse mode, if given, is a compressed triangle that the rule replaces.
[[nodiscard]] bool IsCompressedMode(int64_t sparse_mode);

/// The layout of a checked dense mask, [Sq,Sk] or [B|1,N|1,Sq,Sk].
[[nodiscard]] PairRows DenseMaskRows(const TensorView& mask, int64_t sequences);

/// The layout of dpse, a checked tensor with the shape of the bound `pse`.
[[nodiscard]] PseRows GradPseRows(const PseRows& pse, const TensorView& dpse);

/// Checks the device's own limits for a mask from Mask::FromSparseMode. Part of BindMask.
[[nodiscard]] Status CheckSparseMode(const Binding& call);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_PARTS_H_
