#include "files/staged_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "npy/npy_file.h"

namespace fa::tool {
namespace {

constexpr int kEndingSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

// Signal handlers read these names. So a name is removed from this table before its memory is freed.
std::array<std::atomic<const char*>, StagedFile::kMost> staged_names{};
static_assert(std::atomic<const char*>::is_always_lock_free);
volatile std::sig_atomic_t publishing = 0, waiting_signal = 0;

void EndCleanly(int signal) {
  if (publishing != 0) {
    waiting_signal = signal;
    return;
  }
  RemoveStagedFiles();
  std::signal(signal, SIG_DFL);
  raise(signal);
}

/// Installs the handlers. Signals that the caller ignores (nohup) stay ignored.
void CatchEndingSignals() {
  for (const int signal : kEndingSignals) {
    struct sigaction old = {};
    if (sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = EndCleanly;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

[[noreturn]] void ThrowErrno() { throw npy::IoError(std::strerror(errno)); }

/// Calls `make` with new names in the folder of `target` until one is free, and returns its result. `name` becomes the
/// free name, or empty if `make` fails.
template <typename Make>
int UnderAFreshName(const std::string& target, const Make& make, std::string& name) {
  constexpr int kMostNames = 1000;
  for (int number = 0;; ++number) {
    name = target + "." + std::to_string(getpid()) + "-" + std::to_string(number) + ".part";
    const int made = make(name.c_str());
    if (made >= 0) return made;
    if (errno == EEXIST && number < kMostNames) continue;
    name.clear();
    return made;
  }
}

void NoteName(const char* name) {
  for (auto& slot : staged_names) {
    if (slot.load() != nullptr) continue;
    slot.store(name);
    return;
  }
}

}  // namespace

StagedFile::StagedFile(std::string target, Naming naming) : target_(std::move(target)) {
  CatchEndingSignals();
  // A nameless file later gets a name through /proc/self/fd, so this folder must be accessible.
  const bool nameless = naming == Naming::kIfNeeded && access("/proc/self/fd", X_OK) == 0;
  const int descriptor = nameless ? open(FolderOf(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
  if (descriptor < 0) {
    OpenNamed();
  } else if ((stream_ = fdopen(descriptor, "wb")) == nullptr) {
    close(descriptor);
    ThrowErrno();
  }
}

void StagedFile::OpenNamed() {
  // If a signal came after the file is created and before its name is in the table, the file would stay. So signals
  // wait here.
  const PublishedTogether until_noted;
  const int descriptor = UnderAFreshName(
      target_, [](const char* name) { return open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666); }, name_);
  if (descriptor < 0) ThrowErrno();
  NoteName(name_.c_str());
  stream_ = fdopen(descriptor, "wb");
  if (stream_ != nullptr) return;
  close(descriptor);
  RemoveNameAndThrow();
}

StagedFile::~StagedFile() {
  if (stream_ != nullptr) std::fclose(stream_);
  RemoveName();
}

void StagedFile::RemoveName() noexcept {
  if (name_.empty()) return;
  unlink(name_.c_str());
  for (auto& slot : staged_names) {
    if (slot.load() == name_.c_str()) slot.store(nullptr);
  }
  name_.clear();
}

void StagedFile::RemoveNameAndThrow() {
  const int error = errno;
  RemoveName();
  errno = error;
  ThrowErrno();
}

void StagedFile::Finish() {
  if (std::fflush(stream_) != 0) ThrowErrno();
  // If a disk on another machine is full, this may be noticed only when the file is closed.
  if (!name_.empty() && std::fclose(std::exchange(stream_, nullptr)) != 0) ThrowErrno();
}

// Gives a temporary name to a file that has no name. linkat, which gives the name, cannot replace an existing file;
// rename can.
void StagedFile::TakeName() {
  const std::string path = "/proc/self/fd/" + std::to_string(fileno(stream_));
  const int linked = UnderAFreshName(
      target_, [&](const char* name) { return linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW); },
      name_);
  if (linked != 0) ThrowErrno();
}

void StagedFile::Publish() {
  if (name_.empty()) TakeName();
  if (std::rename(name_.c_str(), target_.c_str()) != 0) RemoveNameAndThrow();
  RemoveName();
}

PublishedTogether::PublishedTogether() { publishing = 1; }

PublishedTogether::~PublishedTogether() {
  publishing = 0;
  if (waiting_signal != 0) raise(waiting_signal);
}

void RemoveStagedFiles() noexcept {
  for (const auto& slot : staged_names) {
    if (const char* name = slot.load()) unlink(name);
  }
}

void MakeFileSizeLimitAnError() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace fa::tool
