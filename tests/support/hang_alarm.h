#ifndef FA_TESTS_SUPPORT_HANG_ALARM_H_
#define FA_TESTS_SUPPORT_HANG_ALARM_H_

#include <unistd.h>

namespace fa::test {

/// Ends the process by SIGALRM when its scope takes longer: a hang is a failure and not the whole suite's time-out. Far
/// more than any machine needs: not a bound on speed.
class HangAlarm {
 public:
  explicit HangAlarm(unsigned seconds = 60) { alarm(seconds); }
  ~HangAlarm() { alarm(0); }
  HangAlarm(const HangAlarm&) = delete;
  HangAlarm& operator=(const HangAlarm&) = delete;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_HANG_ALARM_H_
