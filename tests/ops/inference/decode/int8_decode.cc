#include "ops/inference/decode/int8_decode.h"

#include <algorithm>

#include "ops/inference/prompt/random_prompt_case.h"

namespace fa::test {

Int8DecodeProblem::Int8DecodeProblem(const PromptCase& c) : prompt_(c), args_(prompt_.args()) {}

DecodeAttentionArgs Int8DecodeProblem::args() const {
  DecodeAttentionArgs args;
  args.q = args_.q;
  args.k = {&args_.k, 1};
  args.v = {&args_.v, 1};
  args.lengths_q = args_.lengths_q;
  args.lengths_kv = args_.lengths_kv;
  args.pse = args_.pse;
  args.dense_mask = args_.dense_mask;
  args.deq_scale1 = args_.deq_scale1;
  args.quant_scale1 = args_.quant_scale1;
  args.deq_scale2 = args_.deq_scale2;
  args.quant_scale2 = args_.quant_scale2;
  args.quant_offset2 = args_.quant_offset2;
  args.out = args_.out;
  return args;
}

DecodeAttentionOptions Int8DecodeProblem::options() const {
  const PromptAttentionOptions prompt = prompt_.options();
  DecodeAttentionOptions options;
  options.layout = prompt.layout;
  options.heads = prompt.heads;
  options.scale = prompt.scale;
  options.mask = prompt.mask;
  return options;
}

PromptCase RandomInt8DecodeCase(uint64_t seed) {
  PromptCase c = RandomPromptCase(seed, true);
  if (c.packed()) {
    c.layout = Layout::kBNSD;
    c.batch = std::ssize(c.lengths_q);
    c.sq = *std::max_element(c.lengths_q.begin(), c.lengths_q.end());
    c.sk = *std::max_element(c.lengths_kv.begin(), c.lengths_kv.end());
  }
  if (c.dense_mask == PromptMask::kPlane) c.dense_mask = PromptMask::kBatch;
  return c;
}

}  // namespace fa::test
