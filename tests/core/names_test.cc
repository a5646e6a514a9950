#include <gtest/gtest.h>

#include "fa/tensor.h"

namespace fa {
namespace {

TEST(Name, GivesEachTypeItsOwn) {
  EXPECT_STREQ(Name(DType::kF32), "f32");
  EXPECT_STREQ(Name(DType::kF16), "f16");
  EXPECT_STREQ(Name(DType::kBF16), "bf16");
  EXPECT_STREQ(Name(DType::kI8), "i8");
  EXPECT_STREQ(Name(DType::kU8), "u8");
  EXPECT_STREQ(Name(DType::kBool), "bool");
  EXPECT_STREQ(Name(DType::kI32), "i32");
  EXPECT_STREQ(Name(DType::kI64), "i64");
  EXPECT_STREQ(Name(DType::kU64), "u64");
  EXPECT_STREQ(Name(static_cast<DType>(200)), "unknown");
}

TEST(Name, GivesEachLayoutItsOwn) {
  EXPECT_STREQ(Name(Layout::kBNSD), "BNSD");
  EXPECT_STREQ(Name(Layout::kBSND), "BSND");
  EXPECT_STREQ(Name(Layout::kBSH), "BSH");
  EXPECT_STREQ(Name(Layout::kSBH), "SBH");
  EXPECT_STREQ(Name(Layout::kTND), "TND");
  EXPECT_STREQ(Name(Layout::kBNSD_BSND), "BNSD_BSND");
  EXPECT_STREQ(Name(static_cast<Layout>(200)), "unknown");
}

}  // namespace
}  // namespace fa
