#ifndef FA_TESTS_SUPPORT_EMULATOR_H_
#define FA_TESTS_SUPPORT_EMULATOR_H_

#include <unistd.h>

#include <string>

namespace fa::test {

/// Whether an emulator of one process (qemu-user) runs this program. It shows the program its own name as
/// /proc/self/exe; /proc/thread-self/exe it leaves to the kernel, which names the emulator. Without an emulator the
/// kernel answers both.
inline bool Emulated() {
  const auto target = [](const char* link) {
    std::string name(4096, '\0');
    const ssize_t length = readlink(link, name.data(), name.size());
    name.resize(length > 0 ? static_cast<size_t>(length) : 0);
    return name;
  };
  const std::string shown = target("/proc/self/exe"), run = target("/proc/thread-self/exe");
  return !shown.empty() && !run.empty() && shown != run;
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_EMULATOR_H_
