#ifndef FA_OPS_BIND_PARTS_H_
#define FA_OPS_BIND_PARTS_H_

#include <cstdint>
#include <span>

#include "fa/flash_attention.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// The number of rows of a compressed position bias (PseRows::compressed).
inline constexpr int64_t kCompressedRows = 1024;

/// Sizes that the functions below need in addition to BoundAttention::problem.
struct CallSizes {
  int64_t sequences = 0;           ///< number of batch elements or packed sequences
  int64_t q_rows = 0, k_rows = 0;  ///< rows of query and key: size of dimension S, or T for TND
  int64_t max_sq = 0, max_sk = 0;  ///< lengths of the longest sequence
};

/// Which call is bound. `out` and the statistics are results of a forward, and inputs of a backward. A backward needs
/// both statistics.
enum class Direction : uint8_t { kForward, kBackward };

/// What prompt and decode attention add to the training forward: lengths of padded batch elements, and a dense mask or
/// pse whose last two dimensions are larger than the call needs.
struct Inference {
  ActualLengths lengths;
  bool own_types = false;  ///< whether the operator has checked the types of query, key, value and out
  /// Whether keys lie in pages. Packed sequences then have lengths.kv instead of prefix sums of keys, and their masks
  /// and biases have the forms for padded batch elements.
  bool paged = false;
  /// Whether the call is a fused inference. A fused inference may have any layout, and masks and biases of packed
  /// sequences have the forms for padded batch elements. A statistic may have a last dimension of 1.
  bool fused = false;
  int64_t prefix_rows = 0;  ///< keys of a shared prefix, which precede the keys of every sequence
};

/// The tensors of a dense call while it is bound, with the names that the forward gives them. Binding writes to none of
/// them. Data may be null if the operator has the tensor in another form: only the shape and the strides are used.
struct DenseTensors {
  const TensorView &q, &k, &v;
  const TensorView &q_rope = kNoTensor, &k_rope = kNoTensor;
  const TensorView &pse = kNoTensor, &dense_mask = kNoTensor, &drop_mask = kNoTensor, &sink = kNoTensor;
  const PairMask* pair_mask = nullptr;
  std::span<const int64_t> cu_q = {}, cu_kv = {};
  TensorView out, softmax_max = {}, softmax_sum = {}, lse = {};

  static constexpr TensorView kNoTensor{};
};

/// Returns the tensors that the arguments of a forward and of its backward have in common: all of the forward except
/// lse.
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
          .pair_mask = args.pair_mask,
          .cu_q = args.cu_q,
          .cu_kv = args.cu_kv,
          .out = args.out,
          .softmax_max = args.softmax_max,
          .softmax_sum = args.softmax_sum};
}

/// A call while it is bound. Each Bind function below checks its arguments and fills in its members of `bound`. The
/// functions run in the order in which they are declared.
struct Binding {
  const DenseTensors& args;
  const AttentionOptions& options;
  BoundAttention& bound;
  Direction direction = Direction::kForward;
  const Inference* inference = nullptr;  ///< what inference operators add; null for a training operator
  CallSizes sizes = {};

  [[nodiscard]] bool packed() const { return layout::IsPacked(options.layout); }
  [[nodiscard]] bool paged() const { return inference != nullptr && inference->paged; }
  [[nodiscard]] bool fused() const { return inference != nullptr && inference->fused; }
  [[nodiscard]] int64_t prefix_rows() const { return inference != nullptr ? inference->prefix_rows : 0; }
  /// Returns whether masks and biases have the forms for packed sequences.
  [[nodiscard]] bool packed_pairs() const { return packed() && !paged() && !fused(); }
};

[[nodiscard]] Status BindScalars(Binding& call);  ///< binds the numbers, pse_type, layout and heads
/// Binds types, sizes and rows of query, key, value, their rope parts and out.
[[nodiscard]] Status BindShapes(Binding& call);
/// Makes the sequences, without masks, from prefix sums or lengths. Finds the rows past the last sequence.
[[nodiscard]] Status BindLengths(Binding& call);
[[nodiscard]] Status BindStatistics(Binding& call);  ///< binds softmax_max, softmax_sum, lse, sink
[[nodiscard]] Status BindMask(Binding& call);        ///< makes the mask of each sequence, binds dense_mask
[[nodiscard]] Status BindPse(Binding& call);         ///< binds pse, slopes
[[nodiscard]] Status BindDropout(Binding& call);     ///< binds drop_mask, keep_prob, seed

/// Calls all Bind functions above, in the order of their declarations.
[[nodiscard]] Status BindParts(Binding& call);

/// Binds a prompt or decode call as BindAttention binds a training call. The caller then sets BoundAttention::planned.
[[nodiscard]] Result<BoundAttention> BindInference(const DenseTensors& tensors, const AttentionOptions& options,
                                                   const Inference& inference);

/// Where the sizes of a dense mask or pse come from. With packed queries or pages, some of these sizes are no dimension
/// of a tensor.
struct PairSources {
  SizeSource rows, keys, batch;

  [[nodiscard]] static PairSources Of(const Binding& call);
};

/// Checks dimension `dim`, one of the last two, of the dense mask or pse. The size must be `want`, or at least `want`
/// with Inference.
[[nodiscard]] Status CheckPairSize(const Binding& call, const char* name, const TensorView& tensor, int dim,
                                   int64_t want, SizeSource source);

/// Returns whether a mask tensor with this sparse mode is compressed. Then the mode says which pairs are dropped, and
/// the elements are only checked.
[[nodiscard]] bool IsCompressedMode(int64_t sparse_mode);

/// Checks type and view of a dense mask.
[[nodiscard]] Status CheckMaskTensor(const TensorView& mask);
/// Checks type, view and shape of the mask tensor of a compressed mode. The elements are not checked here.
[[nodiscard]] Status CheckCompressedMask(const TensorView& mask, int64_t sparse_mode);

/// Returns the layout of a checked dense mask, [Sq,Sk] or [B|1,N|1,Sq,Sk].
[[nodiscard]] PairRows DenseMaskRows(const TensorView& mask, int64_t sequences);

/// Returns the layout of a checked sink or of its gradient: [N], [B|1,N,Sq] or packed [T,N].
[[nodiscard]] layout::Stats SinkStats(const TensorView& tensor, bool packed);

/// Returns the layout of dpse, a checked tensor with the sizes of the bound `pse`, or one head.
[[nodiscard]] PseRows GradPseRows(const PseRows& pse, const TensorView& dpse);

/// Checks, for BindMask, that the device would accept a mask from Mask::FromSparseMode.
[[nodiscard]] Status CheckSparseMode(const Binding& call);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_PARTS_H_
