#ifndef FA_TESTS_FUZZ_CRASH_NOTE_H_
#define FA_TESTS_FUZZ_CRASH_NOTE_H_

#include <string>

namespace fa::test {

/// Text that goes to stderr if the program ends by a signal or a sanitizer before the next note; one line.
void NoteForACrash(const std::string& text);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CRASH_NOTE_H_
