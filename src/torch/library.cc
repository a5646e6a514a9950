// Puts the kernels into PyTorch's dispatcher, and takes them out.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "fa/torch.h"
#include "fa/version.h"
#include "tensors.h"

namespace fa::torch_kernels {
namespace {

using ::torch::stable::detail::StableLibrary;

struct Counter {
  const char* op;
  std::atomic<uint64_t> calls;
};
Counter counters[] = {
    {kForward, 0}, {kBackward, 0}, {kPackedForward, 0}, {kPackedForwardInto, 0}, {kPackedBackward, 0}};

Counter* CounterOf(std::string_view op) {
  for (Counter& counter : counters) {
    if (op == counter.op) return &counter;
  }
  return nullptr;
}

struct Activation {
  std::mutex mutex;
  std::unique_ptr<StableLibrary> library;
};

/// Returns the registered kernels. The object is never destroyed, because PyTorch may end before static objects are
/// destroyed.
Activation& Active() {
  static auto* activation = new Activation;
  return *activation;
}

/// Shares the threads of the first OpenMP runtime below that the process has loaded (ShareOpenMpThreads).
void ShareThreads() {
  const char* share = std::getenv("FA_SHARE_OPENMP");
  if (share != nullptr && std::string_view(share) == "0") return;
  for (const char* runtime : {"libgomp.so.1", "libomp.so.5", "libiomp5.so"}) {
    const auto shared = ShareOpenMpThreads(runtime);
    if (shared.ok() && *shared) return;
  }
}

[[maybe_unused]] const bool at_load = [] {
  const char* activate = std::getenv("FA_TORCH_ACTIVATE");
  if (activate == nullptr || std::string_view(activate) != "1") return false;
  const bool active = fa_torch_activate() == 0;
  if (!active) std::fputs("libfa_torch: FA_TORCH_ACTIVATE=1, but PyTorch refuses the kernels\n", stderr);
  return active;
}();

}  // namespace

void Count(const char* op) { CounterOf(op)->calls.fetch_add(1, std::memory_order_relaxed); }

}  // namespace fa::torch_kernels

using namespace fa::torch_kernels;

int fa_torch_activate() {
  Activation& active = Active();
  const std::lock_guard lock(active.mutex);
  if (active.library != nullptr) return 0;
  try {
    auto library = std::make_unique<StableLibrary>(StableLibrary::Kind::IMPL, "aten", "CPU", __FILE__, __LINE__);
    AddDense(*library);
    AddPacked(*library);
    active.library = std::move(library);
  } catch (const std::exception&) {
    return -1;
  }
  ShareThreads();
  return 0;
}

void fa_torch_deactivate() {
  Activation& active = Active();
  const std::lock_guard lock(active.mutex);
  active.library.reset();
}

uint64_t fa_torch_calls(const char* op) {
  const Counter* counter = op == nullptr ? nullptr : CounterOf(op);
  return counter == nullptr ? 0 : counter->calls.load(std::memory_order_relaxed);
}

const char* fa_torch_version() { return FA_VERSION_STRING; }
