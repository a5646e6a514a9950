// In turn, each allocation of an operator or of a runtime function fails: once alone, and once with all later ones. The
// program gets an error code, no memory is lost, and the next call is right.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "aclnn/calls/operator_call.h"
#include "support/allocation_counter.h"

namespace fa::test {
namespace {

constexpr int64_t kMostPlaces = 2000;  // the most allocations that ForEachPlace fails

/// Calls attempt() again and again. In call number `place`, allocation number `place` fails. With `all_later`, every
/// later allocation fails too. Ends when no allocation failed. Calls check() after each attempt. attempt() itself
/// allocates nothing.
template <typename Attempt, typename CheckAfter>
void ForEachPlace(bool all_later, const Attempt& attempt, const CheckAfter& check) {
  for (int64_t place = 1; place <= kMostPlaces; ++place) {
    aclError error = ACL_SUCCESS;
    int64_t failed = 0;
    {
      const FailingAllocations failing(place, all_later);
      error = attempt();
      failed = failing.failed();
    }
    check(place, error, failed);
    if (::testing::Test::HasFailure()) return;
    if (failed == 0) return;
  }
}

using OperatorParameters = std::tuple<Family, Spacing, bool>;
class LowMemory : public ::testing::TestWithParam<OperatorParameters> {};

TEST_P(LowMemory, OperatorsReturnACodeAndLeaveNothing) {
  const auto [family, spacing, all_later] = GetParam();
  OperatorCall call(family, spacing);
  ASSERT_EQ(call.Run(nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
  ASSERT_EQ(call.Run(nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
  const std::vector<std::byte> want = call.Results();
  call.Drop();
  const int64_t live = LiveAllocations();
  int64_t shortages = 0;
  ForEachPlace(
      all_later, [&] { return call.Run(nullptr); },
      [&](int64_t place, aclError error, int64_t failed) {
        EXPECT_TRUE(error == ACL_SUCCESS || error == ACLNN_ERR_RUNTIME_ERROR) << error << " at " << place;
        shortages += error == ACL_SUCCESS ? 0 : 1;
        EXPECT_TRUE(failed > 0 || error == ACL_SUCCESS) << error << ": " << aclGetRecentErrMsg();
        EXPECT_TRUE(error == ACL_SUCCESS || std::string(aclGetRecentErrMsg()).starts_with("out of memory")) << place;
        call.Drop();
        EXPECT_EQ(LiveAllocations(), live) << "at " << place << ", code " << error;
        call.ForgetResults();
        EXPECT_EQ(call.Run(nullptr), ACL_SUCCESS) << "after " << place << ": " << aclGetRecentErrMsg();
        EXPECT_TRUE(call.Results() == want) << "after " << place;
        call.Drop();
      });
  EXPECT_GT(shortages, 0) << "361001 was never returned";
}

INSTANTIATE_TEST_SUITE_P(Families, LowMemory,
                         ::testing::Combine(::testing::ValuesIn(AllFamilies()),
                                            ::testing::Values(Spacing::kDense, Spacing::kSpread), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == Spacing::kSpread ? "_spread" : "") +
                                  (std::get<2>(info.param) ? "_from_there_on" : "_once");
                         });

/// Functions that a program calls besides operators. `call` returns the first code that is not 0. It destroys all that
/// it made, even after an error.
struct RuntimeCase {
  std::string name;
  std::function<aclError()> call;
};

aclError MakeDescriptors() {
  const int64_t shape[] = {2, 3};
  float value = 1;
  aclTensor* tensor = aclCreateTensor(shape, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 2, &value);
  const aclTensor* tensors[] = {tensor, nullptr};
  aclTensorList* list = tensor == nullptr ? nullptr : aclCreateTensorList(tensors, 2);
  aclIntArray* array = aclCreateIntArray(shape, 2);
  aclScalar* scalar = aclCreateScalar(&value, ACL_FLOAT);
  const bool all = list != nullptr && array != nullptr && scalar != nullptr;
  if (list == nullptr) aclDestroyTensor(tensor);
  aclDestroyTensorList(list);
  aclDestroyIntArray(array);
  aclDestroyScalar(scalar);
  return all ? ACL_SUCCESS : ACL_ERROR_BAD_ALLOC;
}

aclError UseMemory() {
  void* memory = &memory;
  const aclError error = aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_NORMAL_ONLY);
  if (error != ACL_SUCCESS) return memory == nullptr ? error : -1;
  return aclrtFree(memory) == ACL_SUCCESS ? ACL_SUCCESS : -1;
}

aclError UseContexts() {
  aclrtContext context = nullptr;
  const aclError error = aclrtCreateContext(&context, 3);
  if (error != ACL_SUCCESS) return error;
  return aclrtDestroyContext(context);
}

// Calls functions that use a thread, an event and copies.
aclError UseAStream() {
  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  char from = 'x', to = 'y';
  aclError error = aclrtCreateStream(&stream);
  const auto then = [&error](aclError next) { error = error == ACL_SUCCESS ? next : error; };
  if (error == ACL_SUCCESS) then(aclrtCreateEvent(&event));
  if (error == ACL_SUCCESS) then(aclrtMemcpyAsync(&to, 1, &from, 1, ACL_MEMCPY_DEFAULT, stream));
  if (error == ACL_SUCCESS) then(aclrtRecordEvent(event, stream));
  if (error == ACL_SUCCESS) then(aclrtStreamWaitEvent(nullptr, event));
  if (error == ACL_SUCCESS) then(aclrtMemsetAsync(&from, 1, 'z', 1, stream));
  if (error == ACL_SUCCESS) then(aclrtSynchronizeEvent(event));
  if (error == ACL_SUCCESS) then(aclrtSynchronizeStream(nullptr));
  if (aclrtSynchronizeDevice() != ACL_SUCCESS) error = -1;
  if (event != nullptr) aclrtDestroyEvent(event);
  if (stream != nullptr) aclrtDestroyStream(stream);
  return error;
}

aclError MakeMistakes() {
  void* memory = nullptr;
  float value = 1;
  const aclError error = aclrtMalloc(&memory, SIZE_MAX, ACL_MEM_MALLOC_NORMAL_ONLY);
  if (error != ACL_ERROR_BAD_ALLOC) return -1;
  const aclError copied = aclrtMemcpy(&value, 1, &value, 4, ACL_MEMCPY_DEFAULT);
  if (copied != ACL_ERROR_INVALID_PARAM && copied != ACL_ERROR_BAD_ALLOC) return -1;
  const aclError destroyed = aclrtDestroyStream(&value);
  if (destroyed != ACL_ERROR_INVALID_PARAM && destroyed != ACL_ERROR_BAD_ALLOC) return -1;
  const aclError tensor = aclDestroyTensor(reinterpret_cast<aclTensor*>(&value));
  if (tensor != ACLNN_ERR_PARAM_INVALID && tensor != ACL_ERROR_BAD_ALLOC) return -1;
  return ACL_SUCCESS;
}

class LowMemoryRuntime : public ::testing::TestWithParam<std::tuple<RuntimeCase, bool>> {};

TEST_P(LowMemoryRuntime, FunctionsReturnACodeAndLeaveNothing) {
  const auto& [runtime, all_later] = GetParam();
  ASSERT_EQ(runtime.call(), ACL_SUCCESS) << aclGetRecentErrMsg();
  const int64_t live = LiveAllocations();
  ForEachPlace(all_later, runtime.call, [&](int64_t place, aclError error, int64_t failed) {
    EXPECT_TRUE(error == ACL_SUCCESS || error == ACL_ERROR_BAD_ALLOC) << error << " at " << place;
    EXPECT_TRUE(failed > 0 || error == ACL_SUCCESS) << error << ": " << aclGetRecentErrMsg();
    EXPECT_EQ(runtime.call(), ACL_SUCCESS) << "after " << place << ": " << aclGetRecentErrMsg();
    EXPECT_EQ(LiveAllocations(), live) << "at " << place;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LowMemoryRuntime,
    ::testing::Combine(::testing::Values(RuntimeCase{"descriptors", MakeDescriptors}, RuntimeCase{"memory", UseMemory},
                                         RuntimeCase{"contexts", UseContexts}, RuntimeCase{"stream", UseAStream},
                                         RuntimeCase{"mistakes", MakeMistakes}),
                       ::testing::Bool()),
    [](const auto& info) {
      return std::get<0>(info.param).name + (std::get<1>(info.param) ? "_from_there_on" : "_once");
    });

}  // namespace
}  // namespace fa::test
