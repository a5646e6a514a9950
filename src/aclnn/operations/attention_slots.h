#ifndef FA_ACLNN_ATTENTION_SLOTS_H_
#define FA_ACLNN_ATTENTION_SLOTS_H_

#include "aclnn/operations/attention_call.h"
#include "aclnn/runtime/operands.h"

namespace fa::aclnn {

/// The inputs that the dense forward and backward share.
struct AttentionSlots {
  Operands::Slot q, q_rope, k, k_rope, v, pse, drop_mask, atten_mask, sink;
};

/// Sets the members that AttentionArgs and AttentionGradArgs share.
template <typename Args>
void SetInputs(const AttentionSlots& slots, const Operands& operands, const AttentionSettings& settings,
               const CallMemory* memory, Args& args) {
  args.q = operands.In(slots.q, memory);
  args.k = operands.In(slots.k, memory);
  args.v = operands.In(slots.v, memory);
  args.q_rope = operands.In(slots.q_rope, memory);
  args.k_rope = operands.In(slots.k_rope, memory);
  args.pse = operands.In(slots.pse, memory);
  args.dense_mask = operands.In(slots.atten_mask, memory);
  args.drop_mask = operands.In(slots.drop_mask, memory);
  args.sink = operands.In(slots.sink, memory);
  args.cu_q = settings.cu_q;
  args.cu_kv = settings.cu_kv;
}

}  // namespace fa::aclnn

#endif  // FA_ACLNN_ATTENTION_SLOTS_H_
