#ifndef FA_TOOLS_FA_COMMANDS_H_
#define FA_TOOLS_FA_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "fa/operators.h"

namespace fa::tool {

// Each function adds one command below its group. A command does its work in CLI11's callback and throws UsageError or
// Failure.

/// Each function adds `fa run` or `fa plan` of one operator. The functions are in files of commands/.
#define FA_DECLARE(name, function, args, options, text) \
  void AddRun##name(CLI::App& run);                     \
  void AddPlan##name(CLI::App& plan);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

/// The operators that `fa bench` measures. The functions are in files of bench/.
#define FA_BENCHED_OPERATORS(X) \
  X(Forward)                    \
  X(Backward)                   \
  X(Decode)                     \
  X(Prompt)                     \
  X(SparseForward)              \
  X(SparseBackward)             \
  X(Indexer)                    \
  X(IndexerBackward)            \
  X(IndexerLoss)                \
  X(DenseIndexerLoss)
#define FA_DECLARE(name) void AddBench##name(CLI::App& bench);
FA_BENCHED_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

void AddInfo(CLI::App& app);
/// Adds `fa doctor` (folder doctor/).
void AddDoctor(CLI::App& app);
/// Adds completion and man pages of the commands of `app`, which must live as long as the added commands (folder
/// pages/).
void AddCompletion(CLI::App& app);
void AddMan(CLI::App& app);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_H_
