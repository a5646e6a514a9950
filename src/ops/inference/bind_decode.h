#ifndef FA_OPS_BIND_DECODE_H_
#define FA_OPS_BIND_DECODE_H_

#include <cstdint>
#include <vector>

#include "fa/decode_attention.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/call_tensors.h"
#include "ops/inference/output_scales.h"
#include "ops/tile/key_storage.h"

namespace fa::ops {

/// A validated decode: the equivalent dense call, and how the keys lie.
struct BoundDecode {
  BoundAttention attention;
  KeyStorage storage;
  BoundOutputScales scales = {};
  std::vector<PlannedTensor> planned;  ///< TensorsOf the planned call
  std::vector<PlannedTensor> planned_k, planned_v;
  std::vector<int64_t> lengths_q, lengths_kv;  ///< the planned lengths, as given
};

/// Finds every user error of a decode that does not depend on addresses or contents.
[[nodiscard]] Result<BoundDecode> BindDecode(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options);

/// Checks in Run: the tensors and lengths are the planned ones, no output shares an element with another tensor, and
/// every entry of block_table that is used is a page.
[[nodiscard]] Status CheckDecodeRunArgs(const BoundDecode& bound, const DecodeAttentionArgs& args);

/// The dense call in a run: tensors of `args`; its keys and values are the first tensors of the lists.
[[nodiscard]] AttentionArgs DenseArgs(const DecodeAttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_DECODE_H_
