#ifndef FA_TOOLS_FA_FILES_FILES_READ_H_
#define FA_TOOLS_FA_FILES_FILES_READ_H_

#include <string>

namespace fa::tool {

/// Notes that the running command has read a regular file. Files are identified by device and inode, so names and links
/// do not matter.
void NoteFileRead(const char* flag, const std::string& path);
/// Returns the flag with which the command has read the file at `path`. Returns null if the command has not read it, or
/// if there is no such file.
[[nodiscard]] const char* FlagThatRead(const std::string& path);
/// Forgets all files. The program calls this function before each command.
void ForgetFilesRead();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_FILES_READ_H_
