#ifndef FA_TESTS_FUZZ_CRASH_NOTE_H_
#define FA_TESTS_FUZZ_CRASH_NOTE_H_

#include <string>

namespace fa::test {

/// Notes one line of text. The line goes to stderr if a signal or a sanitizer ends the program before the next note.
void NoteForACrash(const std::string& text);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_CRASH_NOTE_H_
