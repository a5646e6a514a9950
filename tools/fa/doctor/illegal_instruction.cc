#include "doctor/illegal_instruction.h"

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <utility>

namespace fa::tool {
namespace {

// The handler prints this line. The line is made beforehand, because a signal handler may neither allocate nor format.
std::string note_line;
struct sigaction handler_before = {};

extern "C" void SayAndEnd(int /*signal*/) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, note_line.data(), note_line.size());
  _exit(1);
}

}  // namespace

IllegalInstructionNote::IllegalInstructionNote(std::string line) {
  note_line = std::move(line) + "\n";
  struct sigaction handler = {};
  handler.sa_handler = SayAndEnd;
  sigaction(SIGILL, &handler, &handler_before);
}

IllegalInstructionNote::~IllegalInstructionNote() { sigaction(SIGILL, &handler_before, nullptr); }

}  // namespace fa::tool
