// Tests loading and unloading the library, and work during the end of a process.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "support/execution/emulator.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

/// The library's functions, looked up by name: this program is not linked to it.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() { Close(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] bool open() const { return handle_ != nullptr; }
  int Close() { return handle_ == nullptr ? 0 : dlclose(std::exchange(handle_, nullptr)); }
  template <typename Function>
  Function* Find(Function* /*of this type*/, const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

#define FA_FIND(library, function) (library).Find(static_cast<decltype(function)*>(nullptr), #function)

constexpr int64_t kHeads = 4, kRows = 256, kSize = 16;
constexpr size_t kElements = size_t{kHeads} * kRows * kSize;

/// Attention over ones, large enough for several threads: every output is 1.
struct Call {
  std::vector<float> in = std::vector<float>(kElements, 1.0F), out = std::vector<float>(kElements);
  std::vector<float> max = std::vector<float>(size_t{kHeads} * kRows * 8), sum = max;
  std::vector<char> workspace;

  [[nodiscard]] bool Done() const {
    return std::all_of(out.begin(), out.end(), [](float x) { return x == 1.0F; });
  }

  /// Queues the call on the default stream.
  bool Start(const Library& library) {
    const auto create = FA_FIND(library, aclCreateTensor);
    const auto destroy = FA_FIND(library, aclDestroyTensor);
    const auto plan = FA_FIND(library, aclnnFlashAttentionScoreGetWorkspaceSize);
    const auto run = FA_FIND(library, aclnnFlashAttentionScore);
    const int64_t rows[] = {1, kHeads, kRows, kSize}, eight[] = {1, kHeads, kRows, 8};
    const auto tensor = [&](const int64_t* shape, std::vector<float>& data) {
      return create(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 4, data.data());
    };
    aclTensor* const q = tensor(rows, in);
    aclTensor* const o = tensor(rows, out);
    aclTensor* const m = tensor(eight, max);
    aclTensor* const s = tensor(eight, sum);
    char layout[] = "BNSD";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const aclnnStatus planned = plan(q, q, q, nullptr, nullptr, nullptr, nullptr, nullptr, 1, 1, 65536, 65536, kHeads,
                                     layout, 0, 0, m, s, nullptr, o, &size, &executor);
    for (const aclTensor* one : {q, o, m, s}) destroy(one);
    if (planned != ACLNN_SUCCESS) return false;
    workspace.resize(size);
    return run(workspace.data(), size, executor, nullptr) == ACLNN_SUCCESS;
  }
  bool Run(const Library& library) {
    return Start(library) && FA_FIND(library, aclrtSynchronizeStream)(nullptr) == ACL_SUCCESS && Done();
  }
};

TEST(Reloading, TheInterfaceHundredTimesWithWorkInIt) {
  Call queued;
  for (int i = 0; i < 100; ++i) {
    Library library(FA_ACLNN_LIBRARY);
    ASSERT_TRUE(library.open()) << dlerror();
    Call call;
    ASSERT_TRUE(call.Run(library)) << i;
    if (i % 10 == 0) {
      ASSERT_TRUE(queued.Start(library));
    }
    ASSERT_EQ(library.Close(), 0) << dlerror();
  }
  const Library library(FA_ACLNN_LIBRARY);
  ASSERT_TRUE(library.open()) << dlerror();
  EXPECT_EQ(FA_FIND(library, aclrtSynchronizeStream)(nullptr), ACL_SUCCESS);
  EXPECT_TRUE(queued.Done()) << "what was queued before the last dlclose";
}

TEST(Reloading, TheLibraryHundredTimes) {
  for (int i = 0; i < 100; ++i) {
    Library library(FA_LIBRARY);
    ASSERT_TRUE(library.open()) << dlerror();
    ASSERT_EQ(library.Close(), 0) << dlerror();
  }
}

// Runs in its own process. A new thread makes the library's first call, which makes all of its singletons. Meanwhile
// the calling thread forks a child, and the child computes.
int ForkWhileFirstUsed(int delay_us) {
  const Library library(FA_ACLNN_LIBRARY);
  Call here, there;
  bool right = false;
  std::thread user([&] { right = here.Run(library); });
  usleep(static_cast<useconds_t>(delay_us));
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(there.Run(library) ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  user.join();
  return right && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

TEST(Forking, WhileTheLibraryIsFirstUsed) {
  if (Emulated()) {
    GTEST_SKIP()
        << "qemu-user leaves its own locks (path, clone_lock) held in a child that is forked while another thread "
           "opens a file or starts a thread";
  }
  for (int i = 0; i < 30; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(ForkWhileFirstUsed(i * 300));
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "after " << i * 300 << " us; 2: the child hangs";
  }
}

/// An object whose destructor computes, after main and after the handlers of exit, and then ends the process.
class Late {
 public:
  ~Late() {
    if (!armed) return;
    const Library library(FA_ACLNN_LIBRARY);
    Call call;
    const bool right = library.open() && call.Run(library) && queued != nullptr && queued->Done();
    _exit(right ? 0 : 3);
  }

  bool armed = false;
  Call* queued = nullptr;
};
Late late;

void ExitWithWorkQueued() {
  alarm(HangSeconds(60));
  const Library library(FA_ACLNN_LIBRARY);
  Call first;
  if (!first.Run(library)) std::_Exit(4);
  late.queued = new Call;
  late.armed = true;
  if (!late.queued->Start(library)) std::_Exit(5);
  std::exit(6);  // the destructor ends the process with another code
}

TEST(ProcessEnd, QueuedWorkIsDoneAndStaticDestructorsMayCompute) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWithWorkQueued(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fa::test
