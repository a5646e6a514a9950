#ifndef FA_TOOLS_FA_COMMANDS_PROGRESS_H_
#define FA_TOOLS_FA_COMMANDS_PROGRESS_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace fa::tool {

/// While the object lives, a line on stderr says what is running and for how long. The line appears on a terminal only.
/// Short work shows no line, because the line appears after a delay.
class Progress {
 public:
  explicit Progress(std::string text);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(std::string text);

 private:
  void Show();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PROGRESS_H_
