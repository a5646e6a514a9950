// The command line: attention on .npy files, plans, benchmarks. See docs and `fa --help`.
// Exit codes: 0; 1 for problems with files or memory and for defects; 2 for bad arguments. An error is one line on
// stderr.

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>

#include "command_line.h"
#include "files/staged_file.h"

namespace {

/// Destructors of nlohmann::json allocate (json_value::destroy): without memory they end the process. It then ends as
/// after any other lack of memory.
[[noreturn]] void EndWithoutMemory() noexcept {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    fa::tool::RemoveStagedFiles();
    _exit(fa::tool::ReportError(fa::tool::kFailure, "out of memory"));
  } catch (...) {
    std::abort();
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  fa::tool::MakeFileSizeLimitAnError();
  std::set_terminate(EndWithoutMemory);
  return fa::tool::RunCommandLine(argc, argv);
}
