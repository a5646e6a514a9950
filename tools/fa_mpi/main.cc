// fa-mpi runs commands of fa under mpirun. Every process reads the same words. If the ranks have agreed on an error,
// only rank 0 prints it, and all ranks end with its exit code.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "commands.h"
#include "fa/mpi.h"
#include "fa/version.h"
#include "fa_mpi/rank_commands.h"
#include "fa_mpi/rank_session.h"
#include "files/staged_file.h"
#include "flags/failure.h"
#include "program.h"

namespace {

using fa::tool::kFailure;
using fa::tool::Report;

constexpr const char* kProgram = "fa-mpi";

void AddCommands(CLI::App& app, fa::tool::RankCommand& chosen) {
  app.name(kProgram);
  app.set_version_flag("--version", FA_VERSION_STRING);
  app.require_subcommand(1);
  const auto group = [&app](const char* name, const char* text) -> CLI::App& {
    CLI::App* command = app.add_subcommand(name, text);
    command->require_subcommand(1);
    return *command;
  };
  CLI::App& run = group("run", "Run an operator on .npy files, of which each rank reads and writes its rows");
  fa::tool::AddRankRunForward(run, chosen);
  fa::tool::AddRankRunBackward(run, chosen);
  CLI::App& bench = group("bench", "Measure against the peak of all ranks");
  fa::tool::AddRankBenchForward(bench, chosen);
  fa::tool::AddRankBenchBackward(bench, chosen);
  fa::tool::AddCompletion(app);
  fa::tool::AddMan(app);
}

constexpr const char* kText = "Attention on CPUs, one call over the processes of mpirun";

/// Returns whether the first word is `completion` or `man`. Completion scripts and man pages need no MPI.
bool AsksForPages(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  return first == "completion" || first == "man";
}

void PrintPages(int argc, char** argv) {
  CLI::App app{kText};
  fa::tool::RankCommand none;
  AddCommands(app, none);
  fa::tool::Parse(app, argc, argv);
  fa::tool::FinishOutput();
}

void Main(int argc, char** argv, const fa::tool::RankSession& session) {
  CLI::App app{kText};
  fa::tool::RankCommand chosen;
  AddCommands(app, chosen);
  session.Together([&] { fa::tool::Parse(app, argc, argv); });
  std::string words;
  for (int i = 1; i < argc; ++i) words.append(argv[i]).append(1, '\n');
  // The length comes first, because OfFirst cuts long texts: command lines of different lengths then still differ.
  words.insert(0, std::to_string(words.size()) + '\n');
  const std::string of_first = session.OfFirst(words);
  session.Together([&] {
    if (words.substr(0, of_first.size()) == of_first) return;
    throw fa::tool::UsageError("another command line than rank 0's");
  });
  if (chosen) chosen(session);
  session.Together(fa::tool::FinishOutput);
}

/// Ends all ranks, because this rank cannot wait for them.
int Abort(const char* message) {
  Report(kProgram, kFailure, message);
  MPI_Abort(MPI_COMM_WORLD, kFailure);
  return kFailure;
}

int RunRank(int argc, char** argv) {
  auto transport = fa::mpi::MakeTransport(MPI_COMM_WORLD);
  if (!transport.ok()) return Abort(transport.status().message().c_str());
  const fa::tool::RankSession session(std::move(*transport));
  // All ranks would print the same, so only rank 0 prints.
  if (!session.is_first() && std::freopen("/dev/null", "w", stdout) == nullptr) return Abort("/dev/null: cannot open");
  try {
    Main(argc, argv, session);
    return 0;
  } catch (const fa::tool::AgreedError& error) {
    return session.is_first() ? Report(kProgram, error.exit_code(), error.what()) : error.exit_code();
  } catch (const std::bad_alloc&) {
    return Abort("out of memory");
  } catch (const std::exception& error) {
    return Abort(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  fa::tool::MakeFileSizeLimitAnError();
  fa::tool::EndCleanlyWithoutMemory(kProgram);
  if (AsksForPages(argc, argv)) return fa::tool::ExitCodeOf(kProgram, [&] { PrintPages(argc, argv); });
  int level = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
    return Report(kProgram, kFailure, "MPI_Init_thread failed");
  }
  const int code = RunRank(argc, argv);
  MPI_Finalize();
  return code;
}
