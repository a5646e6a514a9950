#ifndef FA_TESTS_SUPPORT_HANG_ALARM_H_
#define FA_TESTS_SUPPORT_HANG_ALARM_H_

#include <unistd.h>

#include "support/execution/emulator.h"

namespace fa::test {

/// The seconds after which something hangs: under an emulator, which takes some twenty times as long where limits are
/// far more than any machine needs, ten times as many.
inline unsigned HangSeconds(unsigned seconds) { return Emulated() ? 10 * seconds : seconds; }

/// Ends the process by SIGALRM if its scope takes longer: a hang is a failure of its own and not a time-out of the
/// whole suite. The limit is far more than any machine needs; it is no bound on speed.
class HangAlarm {
 public:
  explicit HangAlarm(unsigned seconds = 60) { alarm(HangSeconds(seconds)); }
  ~HangAlarm() { alarm(0); }
  HangAlarm(const HangAlarm&) = delete;
  HangAlarm& operator=(const HangAlarm&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_HANG_ALARM_H_
