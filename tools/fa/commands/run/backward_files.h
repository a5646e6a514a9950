#ifndef FA_TOOLS_FA_COMMANDS_RUN_BACKWARD_FILES_H_
#define FA_TOOLS_FA_COMMANDS_RUN_BACKWARD_FILES_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "files/attention_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"

namespace fa::tool {

/// The flags of `run backward`.
struct BackwardFlags {
  AttentionFlags attention;
  ContextFlags context;
  std::string dout, out, softmax_max, softmax_sum;
  std::string dq, dk, dv, dq_rope, dk_rope, dpse, dslopes, dsink;
};
void AddBackwardFlags(CLI::App& command, BackwardFlags& flags);

/// Returns the inputs of the backward. `inputs` already holds the inputs of the forward, and here reads the rest.
[[nodiscard]] AttentionGradArgs LoadGradInputs(const BackwardFlags& flags, AttentionInputs& inputs);
/// Returns the gradients for which a file is named. The gradients are tensors of `args`.
[[nodiscard]] std::vector<OutputSpec> BackwardOutputs(const BackwardFlags& flags, Layout layout,
                                                      AttentionGradArgs& args);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_RUN_BACKWARD_FILES_H_
