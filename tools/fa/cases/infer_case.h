#ifndef FA_TOOLS_FA_CASES_INFER_CASE_H_
#define FA_TOOLS_FA_CASES_INFER_CASE_H_

#include "cases/decode_case.h"
#include "fa/infer_attention.h"

namespace fa::tool {

/// Returns the tensors of a decode as arguments of fused inference.
[[nodiscard]] InferAttentionArgs InferArgsOf(const DecodeAttentionArgs& decode);
/// Returns the options of the fused inference that computes a decode. Throws UsageError if fused inference lacks the
/// mask.
[[nodiscard]] InferAttentionOptions InferOptionsOf(const DecodeCase& decode);

/// If a sequence has a single query row, drops the band of mode 0 and the causal mask of mode 2, as fused inference
/// does.
void TakeRuleOfSingleRows(DecodeCase& decode);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_INFER_CASE_H_
