#ifndef FA_TOOLS_FA_FILES_OUTPUT_FILES_H_
#define FA_TOOLS_FA_FILES_OUTPUT_FILES_H_

#include <cstddef>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>

#include "files/staged_file.h"

namespace fa::npy {
class Array;
}

namespace fa::tool {

/// The files that a command writes. Either all files are written or none. Add() checks the destinations before any work
/// is done. Commit() writes each as a StagedFile, and gives all of them their names when all are complete. A
/// destination that is not a regular file (/dev/null, a pipe) is written in place. A symbolic link stays: the file that
/// it names is written, even if it does not exist yet.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  /// Adds a file and returns its number. Throws UsageError if two flags name the same file, or if the command has read
  /// this file. Throws Failure if the folder does not exist or is not writable.
  size_t Add(const char* flag, const std::string& path);
  /// Sets the contents of a file, which must live until Commit().
  void Set(size_t file, const npy::Array& array) { files_[file].array = &array; }
  void Set(size_t file, const std::string& text) { files_[file].text = &text; }
  void Commit();

  /// target() returns where a file will be, with symbolic links resolved. in_place() returns whether the destination is
  /// not a regular file.
  [[nodiscard]] const std::string& target(size_t file) const { return files_[file].target; }
  [[nodiscard]] bool in_place(size_t file) const { return files_[file].in_place; }

 private:
  struct File {
    std::string flag, path;
    std::string target;  ///< path with symbolic links resolved
    bool in_place = false;
    const npy::Array* array = nullptr;
    const std::string* text = nullptr;
    std::optional<StagedFile> staged = {};
  };
  static void WriteTo(std::FILE* stream, const File& file);
  static void Write(File& file);
  std::deque<File> files_;  // a deque, because a staged file cannot be moved
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_OUTPUT_FILES_H_
