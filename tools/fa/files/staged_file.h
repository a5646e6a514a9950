#ifndef FA_TOOLS_FA_FILES_STAGED_FILE_H_
#define FA_TOOLS_FA_FILES_STAGED_FILE_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace fa::tool {

/// A file that replaces its destination when it is complete. If an error or a signal ends the process before, nothing
/// of the file remains. If the file system supports it (O_TMPFILE), the file has no name while it is written. Otherwise
/// the file has a temporary name in the destination's folder, which signal handlers remove. One process has at most
/// kMost staged files.
class StagedFile {
 public:
  static constexpr int kMost = 16;
  enum class Naming : uint8_t { kIfNeeded, kAlways };

  /// Opens the file for writing. Throws npy::IoError with the reason that the system gives.
  explicit StagedFile(std::string target, Naming naming = Naming::kIfNeeded);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  [[nodiscard]] std::FILE* stream() const { return stream_; }
  /// Returns the temporary name, or "" if the file has none.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Passes all bytes to the operating system, after the caller has written the last byte. Throws npy::IoError.
  void Finish();
  /// Gives the file its destination's name. A PublishedTogether must live meanwhile. Throws npy::IoError.
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

/// While an object of this class lives, signals that would end the process have to wait. So no signal ends a command
/// between the first and the last file that it publishes. Only one object may live at a time.
class PublishedTogether {
 public:
  PublishedTogether();
  ~PublishedTogether();
  PublishedTogether(const PublishedTogether&) = delete;
  PublishedTogether& operator=(const PublishedTogether&) = delete;
};

/// Removes the files that are not published. A process that ends without running destructors must call this
/// function first.
void RemoveStagedFiles() noexcept;

/// After this call, a write beyond the limit on the size of files (ulimit -f) is an error. Otherwise a signal would end
/// the process.
void MakeFileSizeLimitAnError();

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_STAGED_FILE_H_
