#ifndef FA_TOOLS_FA_FILES_FILES_READ_H_
#define FA_TOOLS_FA_FILES_FILES_READ_H_

#include <string>

namespace fa::tool {

/// Notes a regular file that the running command has read. Device and inode identify files, so names and links do not
/// matter.
void NoteFileRead(const char* flag, const std::string& path);
/// Returns the flag that read the file at `path`. Returns null if no flag read the file, or if there is no such file.
[[nodiscard]] const char* FlagThatRead(const std::string& path);
/// Forgets all files. The program calls this function before each command.
void ForgetFilesRead();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_FILES_READ_H_
