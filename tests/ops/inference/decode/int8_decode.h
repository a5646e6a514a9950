#ifndef FA_TESTS_OPS_INFERENCE_DECODE_INT8_DECODE_H_
#define FA_TESTS_OPS_INFERENCE_DECODE_INT8_DECODE_H_

#include <cstdint>
#include <vector>

#include "fa/decode_attention.h"
#include "ops/inference/prompt/prompt_case.h"

namespace fa::test {

/// A decode call of int8 queries that computes the same as an int8 prompt call, with keys in one tensor. The prompt
/// case must not be packed, and must not have a dense mask of two dimensions, which means something else to decode.
class Int8DecodeProblem {
 public:
  explicit Int8DecodeProblem(const PromptCase& c);
  Int8DecodeProblem(const Int8DecodeProblem&) = delete;
  Int8DecodeProblem& operator=(const Int8DecodeProblem&) = delete;

  [[nodiscard]] const PromptProblem& prompt() const { return prompt_; }
  [[nodiscard]] DecodeAttentionArgs args() const;
  [[nodiscard]] DecodeAttentionOptions options() const;
  [[nodiscard]] Snapshot TakeSnapshot() const { return prompt_.TakeSnapshot(); }

 private:
  PromptProblem prompt_;
  PromptAttentionArgs args_;
};

/// Returns a valid case of int8 queries that depends on the seed alone.
[[nodiscard]] PromptCase RandomInt8DecodeCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFERENCE_DECODE_INT8_DECODE_H_
