#include "fa/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace fa {
namespace {

TEST(Workspace, GivesAlignedMemoryThatCanBeWritten) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{4096}, size_t{1000003}, size_t{5} << 20}) {
    Workspace workspace;
    ASSERT_TRUE(workspace.Reserve(bytes).ok());
    ASSERT_GE(workspace.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.data()) % 64, 0u);
    std::memset(workspace.data(), 0xab, bytes);
    EXPECT_EQ(workspace.data()[bytes - 1], std::byte{0xab});
  }
}

TEST(Workspace, AlignsLargeBlocksToHugePages) {
  Workspace workspace;
  ASSERT_TRUE(workspace.Reserve((size_t{4} << 20) + 1).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.data()) % (size_t{2} << 20), 0u);
  EXPECT_EQ(workspace.size(), size_t{6} << 20);
}

TEST(Workspace, KeepsItsBlockUntilMoreIsWanted) {
  Workspace workspace;
  ASSERT_TRUE(workspace.Reserve(10000).ok());
  const std::byte* const block = workspace.data();
  ASSERT_TRUE(workspace.Reserve(0).ok());
  ASSERT_TRUE(workspace.Reserve(9000).ok());
  ASSERT_TRUE(workspace.Reserve(10000).ok());
  EXPECT_EQ(workspace.data(), block);
  ASSERT_TRUE(workspace.Reserve(20000).ok());
  EXPECT_GE(workspace.size(), 20000u);
}

TEST(Workspace, ReportsOutOfMemoryForSizesNobodyHasAndStaysUsable) {
  Workspace workspace;
  ASSERT_TRUE(workspace.Reserve(100).ok());
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t{1} << 47) + 1}) {
    const Status status = workspace.Reserve(bytes);
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos) << status.message();
    EXPECT_EQ(workspace.data(), nullptr);
    EXPECT_EQ(workspace.size(), 0u);
    EXPECT_TRUE(workspace.Reserve(100).ok());
  }
}

TEST(Workspace, MovesItsBlock) {
  Workspace first;
  ASSERT_TRUE(first.Reserve(1000).ok());
  const std::byte* const block = first.data();
  Workspace second(std::move(first));
  EXPECT_EQ(second.data(), block);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the test is about the moved-from state
  Workspace third;
  ASSERT_TRUE(third.Reserve(10).ok());
  third = std::move(second);
  EXPECT_EQ(third.data(), block);
  EXPECT_EQ(second.size(), 0u);  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace fa
