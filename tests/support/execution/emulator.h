#ifndef FA_TESTS_SUPPORT_EMULATOR_H_
#define FA_TESTS_SUPPORT_EMULATOR_H_

#include <unistd.h>

#include <string>

namespace fa::test {

/// Returns whether a user-mode emulator (qemu-user) runs this program. The emulator answers /proc/self/exe with the
/// program's name. The kernel answers /proc/thread-self/exe with the emulator's name. Without an emulator both names
/// are equal.
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
