#include "tiling/workspace_plan.h"

#include <gtest/gtest.h>

namespace fa::tiling {
namespace {

TEST(WorkspacePlan, BuffersFollowEachOtherAligned) {
  WorkspacePlan plan;
  EXPECT_EQ(plan.Book("scratch", 100), 0U);
  EXPECT_EQ(plan.Book("empty", 0), 128U);
  EXPECT_EQ(plan.Book("slots", 64), 128U);
  EXPECT_EQ(plan.Book("state", 1), 192U);
  EXPECT_EQ(plan.total_bytes(), 256U);
  ASSERT_EQ(plan.buffers().size(), 4U);
  EXPECT_EQ(plan.buffers()[0].name, "scratch");
  EXPECT_EQ(plan.buffers()[0].bytes, 100U);
  EXPECT_EQ(plan.buffers()[3].offset_bytes, 192U);
}

TEST(WorkspacePlan, WhatExceeds63BitsNeverWrapsRound) {
  constexpr size_t kMost = size_t{1} << 47;
  WorkspacePlan plan;
  plan.Book("a part", 64, int64_t{1} << 60);  // these are 2^66 bytes
  EXPECT_GT(plan.total_bytes(), kMost);
  plan.Book("the same", 64, int64_t{1} << 60);
  plan.Book("once more", size_t{1} << 62);
  EXPECT_GT(plan.total_bytes(), kMost);
  EXPECT_EQ(WorkspacePlan().Book("twice", 100, 2), 0U);
}

TEST(WorkspacePlan, BooksAsManyAsAreCounted) {
  WorkspacePlan plan;
  plan.Book("scratch", 100, 3);
  EXPECT_EQ(plan.buffers()[0].bytes, 300U);
  EXPECT_EQ(plan.total_bytes(), 320U);
}

TEST(WorkspacePlan, IsEmptyAtFirst) { EXPECT_EQ(WorkspacePlan().total_bytes(), 0U); }

}  // namespace
}  // namespace fa::tiling
