#ifndef FA_OPS_BIND_INFER_H_
#define FA_OPS_BIND_INFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/infer_attention.h"
#include "layout/rows.h"
#include "ops/inference/bind_decode.h"

namespace fa::ops {

/// The masks of mode 9, one per sequence. The columns of a mask stand for the last keys of the sequence, one per query
/// row.
struct TreeMasks {
  struct PerSequence {
    int64_t from = 0, row = 0;   ///< place of pair (0, 0) in the caller's tensor, and elements from row to row
    int64_t to = 0;              ///< place of the sequence's dense mask in the workspace
    int64_t rows = 0, keys = 0;  ///< rows and keys of the sequence
  };
  std::vector<PerSequence> sequences;  ///< empty: the call has another mode
  size_t bytes = 0;                    ///< bytes of all dense masks
};

/// A validated fused inference: the equivalent decode, and what differs from it.
struct BoundInfer {
  InferAttentionOptions options;
  BoundDecode decode;
  std::vector<int64_t> length_prefix;  ///< the planned length, as the caller gave it
  layout::Rows k_prefix, v_prefix;
  int64_t prefix_rows = 0;
  /// Whether q has left padding, and whether k and v have. Offsets in the problem's sequences assume a padding of 0.
  bool pads_q = false, pads_kv = false;
  int64_t q_rows = 0, kv_rows = 0;    ///< numbers of rows of q and, with left padding, of k and v
  bool absolute_mask = false;         ///< with left padding: whether dense_mask is indexed by rows of the tensors
  bool single_row = false;            ///< whether q has one row per batch element
  bool widens_sink = false;           ///< whether the sink has 16 bits
  int64_t compressed_mask_mode = -1;  ///< if >= 0, dense_mask is the compressed mask of this mode, which Run checks
  TreeMasks tree;
};

/// Finds every user error of a fused inference that does not depend on addresses or contents.
[[nodiscard]] Result<BoundInfer> BindInfer(const InferAttentionArgs& args, const InferAttentionOptions& options);

/// Calls that have the shapes of a given call, and the lengths that need the most memory. There is one list of calls
/// per tile size. For any lengths, the plan of the given call has a tile size between the sizes of two neighbouring
/// lists. Each buffer of that plan is at most as large as the buffer is in some call of these two lists.
struct LargestCalls {
  std::vector<std::vector<BoundInfer>> of_tiles;  ///< from large to small tiles
  /// Keys of packed sequences lie in slots or are cut into parts, which need states. The bytes of slots and states
  /// together are largest in one of three cases: all keys lie in slots, all keys are cut, or as many sequences as
  /// possible are cut into two parts each. In the third case, slots and states take at most these shares of their
  /// largest bytes.
  double slots_then = 1, states_then = 1;
};
/// @param strip_rows  the rows of the widest strip of the call's kernels
[[nodiscard]] LargestCalls LargestCallsOf(const BoundInfer& bound, const InferAttentionArgs& args, int64_t strip_rows);

/// Checks in Run what CheckDecodeRunArgs checks, and also cu_kv, length_prefix, the value of quant_scale1 and the
/// elements of a compressed mask.
[[nodiscard]] Status CheckInferRunArgs(const BoundInfer& bound, const InferAttentionArgs& args);

/// The numbers of rows of left padding, which a run reads.
struct LeftPadding {
  int64_t q = 0, kv = 0;
  /// Whether the keys of some batch element and the padding together exceed kv_rows. Such a batch element is computed
  /// without keys.
  bool drops_keys = false;
};
[[nodiscard]] Result<LeftPadding> ReadLeftPadding(const BoundInfer& bound, const InferAttentionArgs& args);
/// Returns whether the keys of batch element b do not fit in front of the padding.
[[nodiscard]] bool DropsKeys(const BoundInfer& bound, const LeftPadding& padding, size_t b);

/// The memory in the workspace that a run fills before the tiles read it; null if the call needs none.
struct InferMemory {
  std::byte *sink = nullptr, *tree = nullptr;
};
/// Fills `memory`, and returns the tensors of checked arguments. The tensors point into `bound`, `args` and `memory`.
[[nodiscard]] ForwardRows RowsOf(const BoundInfer& bound, const InferAttentionArgs& args, const LeftPadding& padding,
                                 const InferMemory& memory);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_INFER_H_
