#ifndef FA_TOOLS_FA_MPI_RANK_COMMANDS_H_
#define FA_TOOLS_FA_MPI_RANK_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>

#include "fa_mpi/rank_session.h"

namespace fa::tool {

/// The work of a command. All ranks begin the work after every rank has parsed its command line.
using RankCommand = std::function<void(const RankSession&)>;

// Each function adds one command to its group. When CLI11 finds the command, its callback sets `chosen` to the
// command's work.
void AddRankRunForward(CLI::App& run, RankCommand& chosen);
void AddRankRunBackward(CLI::App& run, RankCommand& chosen);
void AddRankBenchForward(CLI::App& bench, RankCommand& chosen);
void AddRankBenchBackward(CLI::App& bench, RankCommand& chosen);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_MPI_RANK_COMMANDS_H_
