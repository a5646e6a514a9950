// Counts every allocation of the process while plans run again, including allocations of the C library. Sanitizer
// builds leave this test out, because sanitizers replace the allocator.

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/context_calls.h"
#include "core/run/flow_executor.h"
#include "core/run/random_graph.h"

// The C library's allocator, under names that remain when a program defines its own malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<int64_t> allocations{0};

void* Counted(void* block) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

// libstdc++'s operator new calls these functions. oneTBB calls them too, unless it uses libtbbmalloc.
extern "C" {
void* malloc(size_t bytes) { return Counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return Counted(__libc_calloc(count, bytes)); }
void* realloc(void* block, size_t bytes) { return Counted(__libc_realloc(block, bytes)); }
void* memalign(size_t alignment, size_t bytes) { return Counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return Counted(__libc_memalign(alignment, bytes)); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = Counted(__libc_memalign(alignment, bytes));
  return *block == nullptr ? ENOMEM : 0;
}
}

namespace fa::core {
namespace {

TEST(Allocation, TheCounterSeesNewAndAlignedBlocks) {
  const int64_t before = allocations.load();
  ::operator delete(::operator new(10));  // written as calls, so that the compiler does not remove them
  Workspace workspace;
  ASSERT_TRUE(workspace.Reserve(1000).ok());
  EXPECT_EQ(allocations.load() - before, 2);
}

class AllocationTest : public testing::TestWithParam<int> {};

TEST_P(AllocationTest, NoneFromTheSecondRunOn) {
  const TaskGraph graph = test::RandomGraph(11, 400, GetParam());
  Context::Impl context({.workers = GetParam()}, test::FourCores());
  std::vector<int> runs(400, 0);
  auto run_task = [&](int32_t task, int) { ++runs[static_cast<size_t>(task)]; };
  auto run = [&] {
    const auto workspace = context.BorrowWorkspace();
    if (!workspace->Reserve(RunStateBytes(graph)).ok()) return false;
    return context.BorrowExecutor()->Run(graph, TaskFunction(run_task), workspace->data()).ok();
  };
  ASSERT_TRUE(run());
  // oneTBB and the C library allocate when a thread starts, which may be in any run. So all threads start here.
  ASSERT_TRUE(test::EveryWorkerComes(context));
  const int64_t before = allocations.load();
  bool ok = true;
  for (int i = 0; i < 300; ++i) ok = run() && ok;
  const int64_t after = allocations.load();
  EXPECT_TRUE(ok);
  EXPECT_EQ(after - before, 0);
  EXPECT_EQ(runs, std::vector<int>(400, 301));
}

INSTANTIATE_TEST_SUITE_P(Workers, AllocationTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace fa::core
