#include "cases/grad_args.h"

namespace fa::tool {

AttentionGradArgs GradArgsOf(const AttentionArgs& forward) {
  AttentionGradArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.pse = forward.pse;
  args.dense_mask = forward.dense_mask;
  args.pair_mask = forward.pair_mask;
  args.drop_mask = forward.drop_mask;
  args.sink = forward.sink;
  args.cu_q = forward.cu_q;
  args.cu_kv = forward.cu_kv;
  return args;
}

}  // namespace fa::tool
