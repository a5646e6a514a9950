#include "files/files_read.h"

#include <sys/stat.h>

#include <optional>
#include <utility>
#include <vector>

namespace fa::tool {
namespace {

using Identity = std::pair<dev_t, ino_t>;

std::vector<std::pair<const char*, Identity>>& FilesRead() {
  static std::vector<std::pair<const char*, Identity>> files;
  return files;
}

/// Returns device and inode of a regular file. Other files get no identity, because a command may both read and write a
/// pipe or a device.
std::optional<Identity> IdentityOf(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return Identity{facts.st_dev, facts.st_ino};
}

}  // namespace

void NoteFileRead(const char* flag, const std::string& path) {
  if (const auto identity = IdentityOf(path)) FilesRead().emplace_back(flag, *identity);
}

const char* FlagThatRead(const std::string& path) {
  const auto identity = IdentityOf(path);
  if (!identity) return nullptr;
  for (const auto& [flag, read] : FilesRead()) {
    if (read == *identity) return flag;
  }
  return nullptr;
}

void ForgetFilesRead() { FilesRead().clear(); }

}  // namespace fa::tool
