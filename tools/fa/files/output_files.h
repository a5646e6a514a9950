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

/// The files that a command writes. If one file cannot be written, no file is. Add() checks the destinations before any
/// work is done. Commit() writes each file as a StagedFile, and gives all files their names when all are complete. If a
/// destination is no regular file (/dev/null, a pipe), it is written in place. If a destination is a symbolic link, the
/// link stays, and the file that it names is written.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  /// Adds a file and returns its number. Throws UsageError if another flag names the same file or the command has read
  /// it. Throws Failure if the folder does not exist or is not writable.
  size_t Add(const char* flag, const std::string& path);
  /// Sets the contents of a file. The contents must live until Commit().
  void Set(size_t file, const npy::Array& array) { files_[file].array = &array; }
  void Set(size_t file, const std::string& text) { files_[file].text = &text; }
  void Commit();

  /// target() returns where a file will be, with symbolic links resolved. in_place() returns whether the destination is
  /// no regular file.
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
