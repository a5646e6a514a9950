#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnn/calls/face_call.h"
#include "fuzz/targets/targets.h"

namespace fa::test {
namespace {

constexpr size_t kSlots = 6;
constexpr aclDataType kTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT8,   ACL_INT32,
                                  ACL_INT64, ACL_UINT8,   ACL_BOOL, ACL_DOUBLE, ACL_DT_UNDEFINED};
constexpr const char* kLayouts[] = {"BNSD", "BSND", "BSH", "SBH", "TND", "", "BNSD "};

/// Handles that two threads share. A handle may be live, destroyed or of an earlier run.
template <typename Handle>
using Slots = std::array<std::atomic<Handle>, kSlots>;

/// One run of two threads. The object's memory lives until all streams have finished their work.
class Run {
 public:
  void Thread(std::span<const uint8_t> bytes) {
    InputBytes input(bytes);
    for (int step = 0; step < 40 && !input.empty(); ++step) Step(input);
  }
  void End() {
    for (auto& stream : streams_) aclrtDestroyStream(stream.load());
    aclrtSynchronizeStream(nullptr);
    aclrtSynchronizeDevice();
    for (auto& event : events_) aclrtDestroyEvent(event.load());
    for (auto& tensor : tensors_) aclDestroyTensor(tensor.load());
    for (auto& array : arrays_) aclDestroyIntArray(array.load());
    for (auto& executor : executors_) aclDestroyAclOpExecutor(executor.load());
  }

 private:
  void Step(InputBytes& input) {
    auto& tensor = tensors_[input.Below(kSlots)];
    auto& stream = streams_[input.Below(kSlots)];
    auto& event = events_[input.Below(kSlots)];
    switch (input.Below(16)) {
      case 0:
      case 1:
      case 2: aclDestroyTensor(tensor.exchange(NewTensor(input))); break;
      case 3: aclDestroyTensor(tensor.load()); break;
      case 4: {
        int64_t values[4];
        for (int64_t& value : values) value = input.Number();
        aclDestroyIntArray(arrays_[input.Below(kSlots)].exchange(aclCreateIntArray(values, input.Below(5))));
        break;
      }
      case 5: aclDestroyIntArray(arrays_[input.Below(kSlots)].load()); break;
      case 6: {
        aclrtStream made = nullptr;
        if (aclrtCreateStream(&made) == ACL_SUCCESS) aclrtDestroyStream(stream.exchange(made));
        break;
      }
      case 7: aclrtDestroyStream(stream.load()); break;
      case 8: {
        aclrtEvent made = nullptr;
        if (aclrtCreateEvent(&made) == ACL_SUCCESS) aclrtDestroyEvent(event.exchange(made));
        break;
      }
      case 9: aclrtRecordEvent(event.load(), stream.load()); break;
      case 10: aclrtDestroyEvent(event.load()); break;
      case 11: aclrtSynchronizeStreamWithTimeout(stream.load(), 20); break;
      case 12:
      case 13: Plan(input); break;
      case 14: Execute(input, stream.load()); break;
      default: aclDestroyAclOpExecutor(executors_[input.Below(kSlots)].load());
    }
  }

  /// Returns a tensor of any type that fits into the buffer.
  aclTensor* NewTensor(InputBytes& input) {
    int64_t shape[4];
    const size_t rank = input.Below(5);
    for (int64_t& size : shape) size = static_cast<int64_t>(input.Below(7));
    return aclCreateTensor(shape, rank, kTypes[input.Below(std::size(kTypes))], nullptr, 0, ACL_FORMAT_ND, shape, rank,
                           buffers_[input.Below(buffers_.size())].data());
  }
  const aclTensor* Tensor(InputBytes& input) { return tensors_[input.Below(kSlots)].load(); }

  void Plan(InputBytes& input) {
    ForwardParameters p;
    p.query = Tensor(input);
    p.key = Tensor(input);
    p.value = Tensor(input);
    p.softmax_max = Tensor(input);
    p.softmax_sum = Tensor(input);
    p.out = Tensor(input);
    p.heads = static_cast<int64_t>(input.Below(4));
    p.layout = kLayouts[input.Below(std::size(kLayouts))];
    p.sparse_mode = static_cast<int64_t>(input.Below(9));
    p.q_lengths = arrays_[input.Below(kSlots)].load();
    p.kv_lengths = arrays_[input.Below(kSlots)].load();
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const bool packed = p.layout == "TND";
    if (GetWorkspaceSize(packed ? ForwardVersion::kVarLen : ForwardVersion::kScore, p, &size, &executor) != 0) return;
    if (input.Below(2) == 0) aclSetAclOpExecutorRepeatable(executor);
    aclDestroyAclOpExecutor(executors_[input.Below(kSlots)].exchange(executor));
  }

  // Each run of the operator gets its own workspace, as the interface demands. The workspace may be too small.
  void Execute(InputBytes& input, aclrtStream stream) {
    constexpr size_t kBytes = size_t{1} << 18;
    std::vector<std::byte>* workspace = nullptr;
    {
      const std::lock_guard lock(mutex_);
      workspace = &workspaces_.emplace_back(kBytes);
    }
    const size_t size = input.Below(4) == 0 ? input.Below(200) : kBytes;
    (void)fa::test::Execute(ForwardVersion::kScore, workspace->data(), size, executors_[input.Below(kSlots)].load(),
                            stream);
  }

  Slots<aclTensor*> tensors_{};
  Slots<aclIntArray*> arrays_{};
  Slots<aclrtStream> streams_{};
  Slots<aclrtEvent> events_{};
  Slots<aclOpExecutor*> executors_{};
  std::array<std::array<std::byte, size_t{6} * 6 * 6 * 6 * 8>, 4> buffers_{};
  std::mutex mutex_;
  std::list<std::vector<std::byte>> workspaces_;
};

}  // namespace

void FuzzFace(std::span<const uint8_t> input) {
  const auto run = std::make_unique<Run>();
  const size_t half = input.size() / 2;
  std::thread other([&] { run->Thread(input.subspan(half)); });
  run->Thread(input.first(half));
  other.join();
  run->End();
  // After these calls the library must work as before.
  aclrtStream stream = nullptr;
  Require(aclrtCreateStream(&stream) == ACL_SUCCESS && aclrtSynchronizeStream(stream) == ACL_SUCCESS &&
              aclrtDestroyStream(stream) == ACL_SUCCESS,
          "a stream afterwards");
}

}  // namespace fa::test
