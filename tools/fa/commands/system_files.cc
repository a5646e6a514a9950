#include "commands/system_files.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace fa::tool {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t CountOfList(const std::string& list) {
  int64_t count = 0;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string range = list.substr(begin, end - begin);
    const size_t dash = range.find('-');
    const int64_t first = std::atoll(range.c_str());
    count += dash == std::string::npos ? 1 : std::atoll(range.c_str() + dash + 1) - first + 1;
    begin = end + 1;
  }
  return count;
}

}  // namespace fa::tool
