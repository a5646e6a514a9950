#ifndef FA_OPS_BIND_PROMPT_H_
#define FA_OPS_BIND_PROMPT_H_

#include <optional>

#include "fa/prompt_flash_attention.h"
#include "ops/bind/bind_attention.h"
#include "ops/tile/output_rows.h"

namespace fa::ops {

/// A validated prompt call.
struct BoundPrompt {
  BoundAttention attention;       ///< `planned` has the tensors of the prompt call
  bool quantised = false;         ///< int8 output
  bool scale_per_column = false;  ///< quant_scale2 has a value for every column of every head
};

/// Finds every user error of the prompt call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundPrompt> BindPrompt(const PromptAttentionArgs& args, const PromptAttentionOptions& options);

/// What says how an output is quantised: quant_scale2 and quant_offset2 beside the types of q and out.
struct OutputScales {
  DType q, out;
  const TensorView &scale, &offset;
};

/// Checks them for `columns` of all heads; *quantised: an int8 output, *per_column: one scale a column.
[[nodiscard]] Status BindOutputScales(const OutputScales& args, int64_t columns, bool* quantised, bool* per_column);

/// Checks in Run, as CheckRunArgs.
[[nodiscard]] Status CheckPromptRunArgs(const BoundAttention& bound, const PromptAttentionArgs& args);

/// The call as the forward sees it.
[[nodiscard]] AttentionArgs ForwardArgs(const PromptAttentionArgs& args);

/// The scales of an int8 product call, read in Run.
struct ProductScales {
  float scores = 1;   ///< of the exact inner products: deq_scale1 * scale
  float quant = 1;    ///< of the probabilities, not negative: the sign is in `product`
  float limit = 127;  ///< of the quantised probabilities
  float product = 1;  ///< of the exact P8 V
};

/// @return kInvalidArgument for one that is not finite
[[nodiscard]] Result<ProductScales> ReadProductScales(const PromptAttentionArgs& args, float scale);

/// Of a checked call; nothing where the output is not int8.
[[nodiscard]] std::optional<OutputQuantisation> OutputQuantisationOf(const BoundPrompt& bound,
                                                                     const PromptAttentionArgs& args,
                                                                     const core::kernels::Int8Table& kernels);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_PROMPT_H_
