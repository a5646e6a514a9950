#ifndef FA_TOOLS_FA_FILES_STAGED_FILE_H_
#define FA_TOOLS_FA_FILES_STAGED_FILE_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace fa::tool {

/// A file that takes the place of its destination when it is complete, and of which nothing stays behind otherwise: not
/// after an error, and not when a signal ends the process. It has no name while it is written, where the file system
/// knows such files (O_TMPFILE); else a name in the folder of the destination, which the handlers of the signals that
/// can be caught remove. One process has at most kMost of them.
class StagedFile {
 public:
  static constexpr int kMost = 16;
  enum class Naming : uint8_t { kIfNeeded, kAlways };

  /// Opens it for writing. Throws npy::IoError with the system's reason.
  explicit StagedFile(std::string target, Naming naming = Naming::kIfNeeded);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  [[nodiscard]] std::FILE* stream() const { return stream_; }
  /// Empty for a file without a name.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// After the last byte: everything is with the operating system. Throws npy::IoError.
  void Finish();
  /// Gives the file its name. Call it while a PublishedTogether lives. Throws npy::IoError.
  void Publish();

 private:
  void OpenNamed();
  void TakeName();
  [[noreturn]] void RemoveNameAndThrow();
  void RemoveName() noexcept;

  std::string target_;
  std::string name_;  ///< until it is published; empty: none
  std::FILE* stream_ = nullptr;
};

/// While it lives, signals that would end the process wait, so that all files of a command get their names or none. One
/// at a time.
class PublishedTogether {
 public:
  PublishedTogether();
  ~PublishedTogether();
  PublishedTogether(const PublishedTogether&) = delete;
  PublishedTogether& operator=(const PublishedTogether&) = delete;
};

/// For the last moment of a process that ends without destructors: removes what is not published.
void RemoveStagedFiles() noexcept;

/// A write beyond the limit on the size of files (ulimit -f) becomes an error instead of the end of the process.
void MakeFileSizeLimitAnError();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_STAGED_FILE_H_
