// The command line tool fa: runs attention on .npy files, prints plans, and measures. See docs and `fa --help`. The
// exit code is 0 on success, 1 for problems with files or memory and for defects, and 2 for bad arguments. An error is
// one line on stderr.

#include "command_line.h"
#include "files/staged_file.h"
#include "program.h"

int main(int argc, char** argv) {
  fa::tool::MakeFileSizeLimitAnError();
  fa::tool::EndCleanlyWithoutMemory("fa");
  return fa::tool::RunCommandLine(argc, argv);
}
