#ifndef FA_TOOLS_FA_COMMANDS_H_
#define FA_TOOLS_FA_COMMANDS_H_

#include <CLI/CLI.hpp>

namespace fa::tool {

// Each adds one command below its group. A new operator adds lines here and in command_line.cc and a file in commands/
// or bench/. A command does its work in CLI11's callback and throws UsageError or Failure.

void AddRunForward(CLI::App& run);
void AddRunBackward(CLI::App& run);
void AddRunDecode(CLI::App& run);
void AddRunMerge(CLI::App& run);
void AddRunPrompt(CLI::App& run);
void AddRunSparseForward(CLI::App& run);
void AddRunSparseBackward(CLI::App& run);
void AddRunIndexer(CLI::App& run);
void AddRunIndexerBackward(CLI::App& run);
void AddRunIndexerLoss(CLI::App& run);
void AddRunDenseIndexerLse(CLI::App& run);
void AddRunDenseIndexerLoss(CLI::App& run);
void AddPlanForward(CLI::App& plan);
void AddPlanBackward(CLI::App& plan);
void AddPlanDecode(CLI::App& plan);
void AddPlanPrompt(CLI::App& plan);
void AddPlanSparseForward(CLI::App& plan);
void AddPlanSparseBackward(CLI::App& plan);
void AddPlanIndexer(CLI::App& plan);
void AddPlanIndexerBackward(CLI::App& plan);
void AddPlanIndexerLoss(CLI::App& plan);
void AddPlanDenseIndexerLse(CLI::App& plan);
void AddPlanDenseIndexerLoss(CLI::App& plan);
void AddBenchForward(CLI::App& bench);
void AddBenchBackward(CLI::App& bench);
void AddBenchDecode(CLI::App& bench);
void AddBenchPrompt(CLI::App& bench);
void AddBenchSparseForward(CLI::App& bench);
void AddBenchSparseBackward(CLI::App& bench);
void AddBenchIndexer(CLI::App& bench);
void AddBenchIndexerBackward(CLI::App& bench);
void AddBenchIndexerLoss(CLI::App& bench);
void AddBenchDenseIndexerLoss(CLI::App& bench);
void AddInfo(CLI::App& app);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_H_
