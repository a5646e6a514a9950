#ifndef FA_TOOLS_FA_FILES_FILES_READ_H_
#define FA_TOOLS_FA_FILES_FILES_READ_H_

#include <string>

namespace fa::tool {

/// The regular files that this process, which runs one command, has read, by device and inode: whatever their names are
/// and through links of both kinds.
void NoteFileRead(const char* flag, const std::string& path);
/// The flag whose file `path` is; null for a file that was not read, or that is not there.
[[nodiscard]] const char* FlagThatRead(const std::string& path);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_FILES_READ_H_
