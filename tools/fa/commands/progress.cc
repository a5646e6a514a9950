#include "commands/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

namespace fa::tool {

Progress::Progress(std::string text) : text_(std::move(text)) {
  if (isatty(STDERR_FILENO) == 0) return;
  try {
    thread_ = std::thread([this] { Show(); });
  } catch (const std::system_error&) {
    // If the system cannot start a thread, the work goes on without a line of progress.
  }
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Progress::Update(std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

void Progress::Show() {
  constexpr auto kFirst = std::chrono::milliseconds(500), kNext = std::chrono::milliseconds(250);
  constexpr const char* kEraseLine = "\r\x1b[K";
  const auto begin = std::chrono::steady_clock::now();
  bool shown = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, shown ? kNext : kFirst, [this] { return done_; })) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    fmt::print(stderr, "{}{}, {:.1f} s", kEraseLine, text_, passed.count());
    std::fflush(stderr);
    shown = true;
  }
  if (shown) fmt::print(stderr, "{}", kEraseLine);
}

}  // namespace fa::tool
