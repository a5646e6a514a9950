#ifndef FA_TOOLS_FA_COMMANDS_H_
#define FA_TOOLS_FA_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "fa/operators.h"

namespace fa::tool {

// Each function adds one command to its group. The command does its work in CLI11's callback, and throws UsageError or
// Failure.

/// Declares functions that add `fa run` or `fa plan` for one operator. The functions are in the files of commands/.
#define FA_DECLARE(name, function, args, options, text) \
  void AddRun##name(CLI::App& run);                     \
  void AddPlan##name(CLI::App& plan);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

/// The operators that `fa bench` measures. The functions that add them are in the files of bench/.
#define FA_BENCHED_OPERATORS(X) \
  X(Forward)                    \
  X(Backward)                   \
  X(Decode)                     \
  X(Prompt)                     \
  X(Infer)                      \
  X(SparseForward)              \
  X(SparseBackward)             \
  X(SharedKv)                   \
  X(SharedKvBackward)           \
  X(Indexer)                    \
  X(IndexerBackward)            \
  X(IndexScore)                 \
  X(IndexerLoss)                \
  X(DenseIndexerLoss)           \
  X(Scatter)                    \
  X(Gather)
#define FA_DECLARE(name) void AddBench##name(CLI::App& bench);
FA_BENCHED_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

void AddInfo(CLI::App& app);
/// Adds `fa doctor` (folder doctor/).
void AddDoctor(CLI::App& app);
/// Adds the commands for completion and man pages of `app`'s commands (folder pages/). `app` must live as long as these
/// commands.
void AddCompletion(CLI::App& app);
void AddMan(CLI::App& app);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_H_
