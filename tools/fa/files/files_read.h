#ifndef FA_TOOLS_FA_FILES_FILES_READ_H_
#define FA_TOOLS_FA_FILES_FILES_READ_H_

#include <string>

namespace fa::tool {

/// Remembers the regular files that the running command has read. Device and inode tell files apart, so names and links
/// do not matter.
void NoteFileRead(const char* flag, const std::string& path);
/// The flag that read the file at `path`; null if no flag read it, or if there is no such file.
[[nodiscard]] const char* FlagThatRead(const std::string& path);
/// Before a command.
void ForgetFilesRead();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_FILES_READ_H_
