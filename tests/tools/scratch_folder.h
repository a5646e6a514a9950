#ifndef FA_TESTS_TOOLS_SCRATCH_FOLDER_H_
#define FA_TESTS_TOOLS_SCRATCH_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fa::test {

/// A folder for the files of one test. The destructor removes it with everything in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  /// Returns the names of the files in the folder, sorted.
  [[nodiscard]] std::vector<std::string> Names() const;
  /// Writes the bytes to a file and returns its path.
  [[nodiscard]] std::string Write(const std::string& name, const std::string& bytes) const;
  [[nodiscard]] std::string Read(const std::string& name) const;

 private:
  std::string folder_;
};

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_SCRATCH_FOLDER_H_
