#ifndef FA_TOOLS_FA_COMMANDS_RUN_FORWARD_FILES_H_
#define FA_TOOLS_FA_COMMANDS_RUN_FORWARD_FILES_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "files/attention_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"

namespace fa::tool {

/// The flags of `run forward`.
struct ForwardFlags {
  AttentionFlags attention;
  ContextFlags context;
  std::string out, softmax_max, softmax_sum, lse;
};
void AddForwardFlags(CLI::App& command, ForwardFlags& flags);

/// Returns the outputs for which a file is named. The outputs are tensors of `args`.
[[nodiscard]] std::vector<OutputSpec> ForwardOutputs(const ForwardFlags& flags, const AttentionInputs& inputs,
                                                     AttentionArgs& args);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_RUN_FORWARD_FILES_H_
