#include "ops/bind/attention_rows.h"

#include "ops/bind/pair_contents.h"

namespace fa::ops {

ScoreInputs ScoreInputsOf(const BoundAttention& bound, const ScoreAddresses& data) {
  ScoreInputs scores{bound};
  scores.q_start = bound.q_start;
  scores.kv_start = bound.kv_start;
  scores.dropout_offset = bound.dropout_offset;
  const auto* pse = static_cast<const std::byte*>(data.pse);
  if (bound.has_pse) scores.pse = {pse, &bound.pse};
  scores.compressed_pse = bound.has_pse && bound.pse.compressed;
  if (bound.has_slopes) scores.slopes = {pse, &bound.slopes};
  if (bound.has_dense_mask) scores.dense_mask = {static_cast<const std::byte*>(data.dense_mask), &bound.dense_mask};
  if (data.pair_mask != nullptr) {
    scores.mask_tiles = TilesOf(*data.pair_mask->contents(), bound.pair_mask);
  }
  if (bound.has_drop_mask) scores.keep_bits = static_cast<const uint8_t*>(data.drop_mask);
  if (bound.has_philox) scores.philox = &bound.philox;
  return scores;
}

ForwardRows RowsOf(const BoundAttention& bound, const ForwardAddresses& data) {
  return {.q = {data.q, bound.q},
          .q_rope = {data.q_rope, bound.q_rope},
          .k = {.view = {data.k, bound.k}},
          .k_rope = {.view = {data.k_rope, bound.k_rope}},
          .v = {.view = {data.v, bound.v}},
          .sink = {data.sink, bound.sink},
          .scores = ScoreInputsOf(bound, data.scores),
          .out = {data.out, bound.out},
          .softmax_max = {data.softmax_max, bound.softmax_max},
          .softmax_sum = {data.softmax_sum, bound.softmax_sum},
          .lse = {data.lse, bound.lse},
          .selected_keys = bound.selected_keys,
          .unused_rows = {bound.tail_row_begin, bound.tail_row_end},
          .padded_rows = bound.padded_rows,
          .lse_without_keys = bound.lse_without_keys};
}

ForwardRows RowsOf(const BoundAttention& bound, const AttentionArgs& args) {
  return RowsOf(bound,
                ForwardAddresses{.q = args.q.data,
                                 .k = args.k.data,
                                 .v = args.v.data,
                                 .q_rope = args.q_rope.data,
                                 .k_rope = args.k_rope.data,
                                 .sink = args.sink.data,
                                 .scores = {args.pse.data, args.dense_mask.data, args.drop_mask.data, args.pair_mask},
                                 .out = args.out.data,
                                 .softmax_max = args.softmax_max.data,
                                 .softmax_sum = args.softmax_sum.data,
                                 .lse = args.lse.data});
}

}  // namespace fa::ops
