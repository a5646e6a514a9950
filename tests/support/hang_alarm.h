#ifndef FA_TESTS_SUPPORT_HANG_ALARM_H_
#define FA_TESTS_SUPPORT_HANG_ALARM_H_

#include <unistd.h>

#include "support/execution/emulator.h"

namespace fa::test {

/// Returns the seconds after which something counts as hanging. `seconds` is far more than any machine needs. Under an
/// emulator the limit is ten times as long.
inline unsigned HangSeconds(unsigned seconds) { return Emulated() ? 10 * seconds : seconds; }

/// Ends the process by SIGALRM if the object lives longer than HangSeconds(seconds). So a hang fails one test and not
/// the whole suite. The limit is far more than any machine needs.
class HangAlarm {
 public:
  explicit HangAlarm(unsigned seconds = 60) { alarm(HangSeconds(seconds)); }
  ~HangAlarm() { alarm(0); }
  HangAlarm(const HangAlarm&) = delete;
  HangAlarm& operator=(const HangAlarm&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_HANG_ALARM_H_
