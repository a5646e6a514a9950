#ifndef FA_TESTS_FUZZ_CRASH_NOTE_H_
#define FA_TESTS_FUZZ_CRASH_NOTE_H_

#include <string>

namespace fa::test {

/// Keeps one line of text. If a signal or a sanitizer ends the program before the next call of NoteForACrash, the line
/// goes to stderr.
void NoteForACrash(const std::string& text);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CRASH_NOTE_H_
