// Tests prompt and decode attention at absurd sizes.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fa/decode_attention.h"
#include "fa/prompt_flash_attention.h"
#include "ops/limits/claimed_tensors.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

PromptAttentionArgs PromptArgs(int64_t b, int64_t n, int64_t sq, int64_t sk, DType dtype) {
  PromptAttentionArgs args;
  args.q = Claim({b, n, sq, 16}, dtype);
  args.k = args.v = Claim({b, n, sk, 16}, dtype);
  args.out = ClaimOutput({b, n, sq, 16}, dtype == DType::kI8 ? DType::kF16 : dtype);
  if (dtype == DType::kI8) args.deq_scale1 = args.quant_scale1 = args.deq_scale2 = Claim({1});
  return args;
}

TEST(InferenceLimits, PromptRefusesAbsurdSizesOrPlansThem) {
  const HangAlarm alarm;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const auto plan = [&](int64_t b, int64_t n, int64_t sq, int64_t sk) {
      const std::string text = std::to_string(b) + " " + std::to_string(n) + " " + std::to_string(sq) + " " +
                               std::to_string(sk) + " " + Name(dtype);
      ExpectRefusedOrSmall(PlanPromptFlashAttention(PromptArgs(b, n, sq, sk, dtype), {}), text);
    };
    for (const int64_t size : AbsurdSizes()) {
      plan(size, 2, 16, 16);
      plan(size, 2, 0, 16);
      plan(1, size, 64, 16);
      plan(size, size, size, size);
    }
    for (const int64_t size : AbsurdSizes(Power(40))) {
      plan(1, 2, size, 16);
      plan(1, 2, 1, size);
      plan(1, 2, 1000, size);
    }
  }
}

TEST(InferenceLimits, PromptWithLengthsOfAbsurdBatches) {
  const HangAlarm alarm;
  const std::array<int64_t, 1> length{1};
  for (const int64_t size : AbsurdSizes()) {
    PromptAttentionArgs args = PromptArgs(size, 2, 1, 1, DType::kF32);
    args.lengths_q = args.lengths_kv = length;
    ExpectRefused(PlanPromptFlashAttention(args, {}).status(), std::to_string(size));
  }
}

struct Decode {
  DecodeAttentionArgs args;
  std::vector<TensorView> k, v;
  std::vector<int64_t> lengths;

  Decode(int64_t b, int64_t n, const Dims& keys) {
    args.q = Claim({b, n, 1, 8});
    k = v = {Claim(keys)};
    args.k = k;
    args.v = v;
    args.out = ClaimOutput({b, n, 1, 8});
  }
  void Page(const Dims& table, int64_t length) {
    args.block_table = Claim(table, DType::kI32);
    lengths = {length};
    args.lengths_kv = lengths;
  }
};

TEST(InferenceLimits, DecodeRefusesAbsurdSizesOrPlansThem) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes()) {
    const std::string text = std::to_string(size);
    ExpectRefused(PlanDecodeAttention(Decode(size, 2, {size, 1, 16, 8}).args, {}).status(), "B " + text);
    ExpectRefused(PlanDecodeAttention(Decode(1, size, {1, size, 16, 8}).args, {}).status(), "N " + text);
    ExpectRefusedOrSmall(PlanDecodeAttention(Decode(1, 2, {1, 1, size, 8}).args, {}), "S " + text);
  }
  for (const int64_t size : AbsurdSizes(Power(40))) {  // with one row, heads become rows of one tile
    ExpectRefused(PlanDecodeAttention(Decode(1, size, {1, 1, 16, 8}).args, {}).status(), std::to_string(size));
  }
}

TEST(InferenceLimits, PagesOfAbsurdNumberAndSize) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes()) {
    const std::string text = std::to_string(size);
    for (const int64_t length : {int64_t{16}, size}) {
      Decode pages(1, 2, {size, 1, 16, 8});
      pages.Page({1, 4}, length);
      ExpectRefusedOrSmall(PlanDecodeAttention(pages.args, {}), "pages " + text);
      Decode rows(1, 2, {4, 1, size, 8});
      rows.Page({1, 4}, length);
      ExpectRefusedOrSmall(PlanDecodeAttention(rows.args, {}), "page rows " + text);
      Decode columns(1, 2, {4, 1, 16, 8});
      columns.Page({1, size}, length);
      ExpectRefusedOrSmall(PlanDecodeAttention(columns.args, {}), "table columns " + text);
    }
    Decode batch(size, 2, {4, 1, 16, 8});
    batch.Page({size, 4}, 16);
    ExpectRefused(PlanDecodeAttention(batch.args, {}).status(), "table rows " + text);
  }
}

TEST(InferenceLimits, AntiquantizationPerTokenOfAbsurdLength) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes()) {
    Decode decode(1, 2, {1, 1, size, 8});
    decode.k[0].dtype = decode.v[0].dtype = DType::kI8;
    decode.args.antiquant_scale = Claim({2, 1, size});
    ExpectRefused(PlanDecodeAttention(decode.args, {.antiquant = Antiquant::kPerToken}).status(), std::to_string(size));
  }
}

TEST(InferenceLimits, MasksAndBiasesOfShapesNotCheckedYet) {
  const HangAlarm alarm;
  for (const int64_t size : AbsurdSizes(Power(40))) {
    Decode decode(1, 2, {1, 1, 16, 8});
    decode.args.dense_mask = ClaimOutput({size, size, size}, DType::kU8);
    ExpectRefused(PlanDecodeAttention(decode.args, {}).status(), "mask");
    decode.args.dense_mask = {};
    decode.args.pse = ClaimOutput({size, size, size, size});
    ExpectRefused(PlanDecodeAttention(decode.args, {}).status(), "pse");
  }
}

}  // namespace
}  // namespace fa::test
