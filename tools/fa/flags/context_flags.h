#ifndef FA_TOOLS_FA_FLAGS_CONTEXT_FLAGS_H_
#define FA_TOOLS_FA_FLAGS_CONTEXT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "fa/context.h"

namespace fa::tool {

/// Values of --threads, --isa, --accumulation.
struct ContextFlags {
  int threads = 0;
  std::string isa;
  std::string accumulation = "deterministic";
};

/// Values of --threads, --isa, --accumulation, --cores.
struct PlanContextFlags {
  ContextFlags here;
  int cores = 0;  ///< cores of another machine; 0 stands for this machine
};

void AddContextFlags(CLI::App& command, ContextFlags& flags);
void AddContextFlags(CLI::App& command, PlanContextFlags& flags);
/// Makes the context that the flags describe. Throws UsageError.
[[nodiscard]] std::unique_ptr<Context> MakeContext(const ContextFlags& flags);
[[nodiscard]] std::unique_ptr<Context> MakeContext(const PlanContextFlags& flags);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_CONTEXT_FLAGS_H_
