#ifndef FA_TESTS_SUPPORT_HANG_ALARM_H_
#define FA_TESTS_SUPPORT_HANG_ALARM_H_

#include <unistd.h>

#include "support/execution/emulator.h"

namespace fa::test {

/// Returns the seconds after which something counts as hanging. `seconds` is far more than any machine needs. An
/// emulator is some twenty times as slow as a machine, but ten times the limit is still enough.
inline unsigned HangSeconds(unsigned seconds) { return Emulated() ? 10 * seconds : seconds; }

/// Ends the process by SIGALRM if its scope takes longer. So a hang fails its test, and not the whole suite by a
/// time-out. The limit is far more than any machine needs, and not a requirement on speed.
class HangAlarm {
 public:
  explicit HangAlarm(unsigned seconds = 60) { alarm(HangSeconds(seconds)); }
  ~HangAlarm() { alarm(0); }
  HangAlarm(const HangAlarm&) = delete;
  HangAlarm& operator=(const HangAlarm&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_HANG_ALARM_H_
