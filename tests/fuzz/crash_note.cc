#include "fuzz/crash_note.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>

#include "support/sanitizer.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace fa::test {
namespace {

// The note is plain memory, so a signal handler may read it.
std::array<char, 4096> note;
std::size_t note_size = 0;

void WriteNote() {
  if (write(STDERR_FILENO, note.data(), note_size) < 0) _exit(1);
}

void WriteNoteAndDie(int signal) {
  WriteNote();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void Install() {
  if (Sanitized()) {
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(WriteNote);
    return;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) std::signal(signal, WriteNoteAndDie);
}

}  // namespace

void NoteForACrash(const std::string& text) {
  static const bool installed = (Install(), true);
  (void)installed;
  note_size = std::min(text.size(), note.size() - 1);
  std::copy_n(text.begin(), note_size, note.begin());
  note[note_size++] = '\n';
}

}  // namespace fa::test
