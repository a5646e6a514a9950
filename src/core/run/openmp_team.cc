#include "core/run/openmp_team.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/machine/affinity.h"
#include "core/run/fork_depth.h"
#include "core/tsan.h"
#include "fa/error_text.h"

namespace fa::core {
namespace {

/// The functions of an OpenMP runtime that the library calls. GNU's entry point for a parallel region also exists in
/// the runtimes of LLVM and Intel.
struct Runtime {
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*max_threads)();
  int (*threads)();
  int (*in_parallel)();
  int (*thread_num)();
  void* library;
  /// Whether the runtime binds its threads to CPUs, and the caller is bound to fewer CPUs than the runtime has threads.
  /// Threads that the caller starts inherit the caller's CPUs, so the library's own threads would all share these few
  /// CPUs.
  bool confines_caller;
  uint32_t fork_depth;
  const Runtime* before;  ///< the runtime that was recorded before; kept, because a call may still use it
};

std::atomic<const Runtime*> shared{nullptr};
std::atomic<const Runtime*> all{nullptr};

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

/// Returns whether this process is a forked child that has not started another program with exec. Such a child lacks
/// the threads of its parent. ForkDepth alone would not do, because it does not count forks before the library was
/// loaded.
bool ForkedWithoutExec() {
  if (ForkDepth() != 0) return true;
  constexpr unsigned kForkedNoExec = 0x40;  // PF_FORKNOEXEC of Linux
  std::array<char, 512> text{};
  std::FILE* file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return false;
  const size_t size = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  text[size] = 0;
  // The flags are field 9. Field 2, the name of the process, may have any characters, so fields are counted from the
  // ')' at its end. After it come the state, five numbers and the flags.
  const char* at = std::strrchr(text.data(), ')');
  for (int field = 2; at != nullptr && field < 9; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr && (std::strtoul(at, nullptr, 10) & kForkedNoExec) != 0;
}

/// The first thread of the program that makes a call owns the team, until that thread ends. Calls from other threads
/// run on the library's own threads. The reason is that an OpenMP runtime starts and keeps further threads for every
/// thread that begins a parallel region.
class Owner {
 public:
  ~Owner() { Release(number_); }

  [[nodiscard]] bool Take() {
    if (number_ == 0) number_ = count.fetch_add(1, std::memory_order_relaxed) + 1;
    uint64_t none = 0;
    return owner.compare_exchange_strong(none, number_, std::memory_order_acquire) || none == number_;
  }
  static void Release(uint64_t number) {
    if (number != 0) owner.compare_exchange_strong(number, 0, std::memory_order_release);
  }
  static void ReleaseAny() { owner.store(0, std::memory_order_release); }

 private:
  static inline constinit std::atomic<uint64_t> count{0}, owner{0};
  uint64_t number_ = 0;
};

thread_local Owner this_thread;

/// A parallel region ends only when all its threads have arrived, even if no task is left for them. If other processes
/// use the cores, this takes long. After such a late region, the next 2 runs use the library's own threads. If the
/// region after these runs is late too, the number of such runs doubles, up to 1024. A runtime with confines_caller is
/// used all the same.
class Lateness {
 public:
  [[nodiscard]] bool SkipsRun() {
    const int left = skip_.load(std::memory_order_relaxed);
    if (left > 0) skip_.store(left - 1, std::memory_order_relaxed);
    return left > 0;
  }
  void AfterRun(bool late) {
    const int doublings = late ? std::min(doublings_.load(std::memory_order_relaxed) + 1, 10) : 0;
    doublings_.store(doublings, std::memory_order_relaxed);
    skip_.store(late ? 1 << doublings : 0, std::memory_order_relaxed);
  }
  void Forget() { AfterRun(false); }

 private:
  std::atomic<int> doublings_{0}, skip_{0};
};

Lateness lateness;

struct Region {
  const Runtime& runtime;
  OpenMpTeam::Body body;
  std::atomic<int> arrived{0};
  bool late = false;  ///< whether the caller had run everything before all threads had arrived
};

void RunAsThread(void* data) {
  Region& region = *static_cast<Region*>(data);
  TsanAcquire(&shared);
  region.arrived.fetch_add(1, std::memory_order_relaxed);
  const int worker = region.runtime.thread_num();
  region.body(worker);
  if (worker == 0) region.late = region.arrived.load(std::memory_order_relaxed) < region.runtime.threads();
  TsanRelease(&shared);
}

}  // namespace

Result<bool> OpenMpTeam::Share(std::string_view runtime) {
  if (runtime.empty()) {
    shared.store(nullptr, std::memory_order_release);
    Owner::ReleaseAny();
    lateness.Forget();
    return true;
  }
  const std::string name(runtime);
  // With RTLD_NOLOAD, dlopen finds the runtime only if the process has loaded it. A recorded runtime keeps one handle
  // open for good, since other threads may call into it. Any further handle is closed.
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const Runtime* known = all.load(std::memory_order_acquire);
  while (known != nullptr && (known->library != library || known->fork_depth != ForkDepth())) known = known->before;
  if (known != nullptr) {
    dlclose(library);
    shared.store(known, std::memory_order_release);
    return true;
  }
  auto found = std::make_unique<Runtime>();
  if (!Find(library, "GOMP_parallel", found->parallel) || !Find(library, "omp_get_max_threads", found->max_threads) ||
      !Find(library, "omp_get_num_threads", found->threads) || !Find(library, "omp_in_parallel", found->in_parallel) ||
      !Find(library, "omp_get_thread_num", found->thread_num)) {
    dlclose(library);
    return Status::InvalidArgument(ErrorText::Argument("runtime").Is("\"" + name + "\"") +
                                   ", want an OpenMP runtime with GOMP_parallel, such as libgomp.so.1");
  }
  if (ForkedWithoutExec()) {
    dlclose(library);
    return false;
  }
  int (*proc_bind)() = nullptr;  // OpenMP 3.1; 0 stands for threads that are not bound
  found->confines_caller = Find(library, "omp_get_proc_bind", proc_bind) && proc_bind() != 0 &&
                           std::cmp_less(AllowedCpus().size(), found->max_threads());
  found->library = library;
  found->fork_depth = ForkDepth();
  found->before = all.load(std::memory_order_acquire);
  while (!all.compare_exchange_weak(found->before, found.get(), std::memory_order_acq_rel)) {
  }
  shared.store(found.release(), std::memory_order_release);
  return true;
}

bool OpenMpTeam::Run(int workers, Body body) noexcept {
  const Runtime* runtime = shared.load(std::memory_order_acquire);
  if (runtime == nullptr || runtime->fork_depth != ForkDepth() || runtime->max_threads() != workers ||
      runtime->in_parallel() != 0 || !this_thread.Take() || (!runtime->confines_caller && lateness.SkipsRun())) {
    return false;
  }
  Region region{*runtime, body};
  TsanRelease(&shared);
  runtime->parallel(&RunAsThread, &region, static_cast<unsigned>(workers), 0);
  TsanAcquire(&shared);
  lateness.AfterRun(region.late);
  return true;
}

}  // namespace fa::core
