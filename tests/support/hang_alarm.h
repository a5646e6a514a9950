#ifndef FA_TESTS_SUPPORT_HANG_ALARM_H_
#define FA_TESTS_SUPPORT_HANG_ALARM_H_

#include <unistd.h>

#include "support/execution/emulator.h"

namespace fa::test {

/// Returns the limit in seconds after which something counts as hanging. Limits are far more than any machine needs. An
/// emulator is some twenty times as slow, so under it ten times the limit is enough.
inline unsigned HangSeconds(unsigned seconds) { return Emulated() ? 10 * seconds : seconds; }

/// Ends the process by SIGALRM if its scope takes longer. So a hang is a failure of its own and no time-out of the
/// whole suite. The limit is far more than any machine needs, and no bound on speed.
class HangAlarm {
 public:
  explicit HangAlarm(unsigned seconds = 60) { alarm(HangSeconds(seconds)); }
  ~HangAlarm() { alarm(0); }
  HangAlarm(const HangAlarm&) = delete;
  HangAlarm& operator=(const HangAlarm&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_HANG_ALARM_H_
