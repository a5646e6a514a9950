#include "ops/bind/attention_rows.h"

namespace fa::ops {

ScoreInputs ScoreInputsOf(const BoundAttention& bound, const ScoreTensors& tensors) {
  ScoreInputs scores{.scale = bound.scale,
                     .softcap = bound.softcap,
                     .pse_type = bound.pse_type,
                     .q_start = bound.q_start,
                     .kv_start = bound.kv_start,
                     .dropout_offset = bound.dropout_offset,
                     .keep_prob = bound.keep_prob};
  if (bound.has_pse) scores.pse = {static_cast<const std::byte*>(tensors.pse.data), &bound.pse};
  if (bound.has_slopes) scores.slopes = {tensors.pse.data, {.batch = bound.slope_batch_stride, .head = 1}};
  if (bound.has_dense_mask) scores.dense_mask = {tensors.dense_mask.data, bound.dense_mask};
  if (bound.has_drop_mask) scores.keep_bits = static_cast<const uint8_t*>(tensors.drop_mask.data);
  if (bound.has_philox) scores.philox = &bound.philox;
  return scores;
}

ForwardRows RowsOf(const BoundAttention& bound, const AttentionArgs& args) {
  return {.q = {args.q.data, bound.q},
          .q_rope = {args.q_rope.data, bound.q_rope},
          .k = {.view = {args.k.data, bound.k}},
          .k_rope = {.view = {args.k_rope.data, bound.k_rope}},
          .v = {.view = {args.v.data, bound.v}},
          .sink = static_cast<const float*>(args.sink.data),
          .scores = ScoreInputsOf(bound, {args.pse, args.dense_mask, args.drop_mask}),
          .out = {args.out.data, bound.out},
          .softmax_max = {args.softmax_max.data, bound.softmax_max},
          .softmax_sum = {args.softmax_sum.data, bound.softmax_sum},
          .lse = {args.lse.data, bound.lse},
          .selected_keys = bound.selected_keys,
          .unused_rows = {bound.tail_row_begin, bound.tail_row_end},
          .padded_rows = bound.padded_rows};
}

}  // namespace fa::ops
