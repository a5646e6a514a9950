#include "core/run/openmp_team.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/run/fork_depth.h"
#include "core/tsan.h"

namespace fa::core {
namespace {

/// What is called of a runtime. GNU's entry point for a region is also one of LLVM's and Intel's runtimes.
struct Runtime {
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*max_threads)();
  int (*in_parallel)();
  int (*thread_num)();
  uint32_t fork_depth;
  const Runtime* before;  ///< what was shared before: a call may still be using it, so it is kept
};

std::atomic<const Runtime*> shared{nullptr};
std::atomic<const Runtime*> all{nullptr};
std::atomic<bool> in_use{false};

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

struct Region {
  const Runtime& runtime;
  OpenMpTeam::Body body;
};

void RunAsThread(void* data) {
  const Region& region = *static_cast<const Region*>(data);
  TsanAcquire(&in_use);
  region.body(region.runtime.thread_num());
  TsanRelease(&in_use);
}

}  // namespace

Result<bool> OpenMpTeam::Share(std::string_view runtime) {
  if (runtime.empty()) {
    shared.store(nullptr, std::memory_order_release);
    return true;
  }
  const std::string name(runtime);
  // Not loaded by this, and never closed: calls may be on their way to it.
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  auto found = std::make_unique<Runtime>();
  if (!Find(library, "GOMP_parallel", found->parallel) || !Find(library, "omp_get_max_threads", found->max_threads) ||
      !Find(library, "omp_in_parallel", found->in_parallel) ||
      !Find(library, "omp_get_thread_num", found->thread_num)) {
    dlclose(library);
    return Status::InvalidArgument(ErrorText::Argument("runtime").Is("\"" + name + "\"") +
                                   ", want an OpenMP runtime with GOMP_parallel, such as libgomp.so.1");
  }
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
      runtime->in_parallel() != 0 || in_use.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  Region region{*runtime, body};
  TsanRelease(&in_use);
  runtime->parallel(&RunAsThread, &region, static_cast<unsigned>(workers), 0);
  TsanAcquire(&in_use);
  in_use.store(false, std::memory_order_release);
  return true;
}

}  // namespace fa::core
