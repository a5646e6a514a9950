#ifndef FA_TOOLS_FA_FILES_STAGED_FILE_H_
#define FA_TOOLS_FA_FILES_STAGED_FILE_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace fa::tool {

/// A file that takes the place of its destination when it is complete. If it is never completed, nothing of the file
/// stays behind, neither after an error nor when a signal ends the process. While the file is written it has no name,
/// if the file system supports that (O_TMPFILE). Otherwise it has a temporary name in the folder of the destination.
/// Handlers remove this name on signals that can be caught. One process has at most kMost of these files.
class StagedFile {
 public:
  static constexpr int kMost = 16;
  enum class Naming : uint8_t { kIfNeeded, kAlways };

  /// Opens the file for writing. Throws npy::IoError with the system's reason.
  explicit StagedFile(std::string target, Naming naming = Naming::kIfNeeded);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  [[nodiscard]] std::FILE* stream() const { return stream_; }
  /// Returns the temporary name, or "" for a file without a name.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Passes all bytes to the operating system. Call Finish after the last byte is written. Throws npy::IoError.
  void Finish();
  /// Gives the file the name of its destination. Call Publish while a PublishedTogether lives. Throws npy::IoError.
  void Publish();

 private:
  void OpenNamed();
  void TakeName();
  [[noreturn]] void RemoveNameAndThrow();
  void RemoveName() noexcept;

  std::string target_;
  std::string name_;  ///< the temporary name until the file is published, or empty
  std::FILE* stream_ = nullptr;
};

/// While an object of this class lives, signals that would end the process wait. So either all files of a command get
/// their names or none. Only one object may live at a time.
class PublishedTogether {
 public:
  PublishedTogether();
  ~PublishedTogether();
  PublishedTogether(const PublishedTogether&) = delete;
  PublishedTogether& operator=(const PublishedTogether&) = delete;
};

/// Removes the files that are not published. Call RemoveStagedFiles before the process ends without running
/// destructors.
void RemoveStagedFiles() noexcept;

/// Makes a write beyond the limit on the size of files (ulimit -f) an error, where a signal would otherwise end the
/// process.
void MakeFileSizeLimitAnError();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_STAGED_FILE_H_
