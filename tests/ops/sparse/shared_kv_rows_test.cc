// Attention over quantised rows of original and compressed keys has the bits of attention over the dequantised keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fa/shared_kv_attention.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"
#include "support/tensor.h"

namespace fa::test {
namespace {

constexpr int64_t kRowHeads = 20, kRowD = 72, kRowRope = 8, kRowTile = 24, kRowQueries = 5, kRowSlots = 9;
constexpr int64_t kRowNumbers = kRowD - kRowRope, kRowScales = (kRowNumbers + kRowTile - 1) / kRowTile;

/// Returns the number that an e4m3 code stands for.
double OfE4M3(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}

/// Random keys: `rows` holds them quantised, with padding behind each row, and `plain` holds them dequantised.
struct KeyRowsOfBytes {
  KeyRowsOfBytes(DType dtype, int64_t batch, int64_t keys, uint64_t seed)
      : row_bytes(kRowRope * static_cast<int64_t>(SizeOf(dtype)) + kRowNumbers + kRowScales + 5),
        rows(DType::kF8E4M3, {batch, keys, 1, row_bytes}, {}),
        plain(dtype, {batch, keys, 1, kRowD}, {}) {
    const int64_t rope_bytes = kRowRope * static_cast<int64_t>(SizeOf(dtype));
    for (int64_t row = 0; row < batch * keys; ++row) {
      std::byte* to = rows.Address(row * row_bytes);
      for (int64_t c = 0; c < kRowRope; ++c) {
        plain.Set(row * kRowD + kRowNumbers + c, RandomNormal(seed, Tag::kKRope, {row, c}));
      }
      std::memcpy(to, plain.Address(row * kRowD + kRowNumbers), static_cast<size_t>(rope_bytes));
      for (int64_t c = 0; c < kRowNumbers; ++c) {
        uint8_t code = static_cast<uint8_t>(RandomBits(seed, Tag::kK, {row, c}));
        if ((code & 0x7F) == 0x7F) code = 0;
        const int64_t tile = c / kRowTile;
        // Each twelfth row has the smallest scale, 2^-127.
        const auto exponent =
            static_cast<uint8_t>(row % 12 == 7 ? 0 : 119 + RandomBits(seed, Tag::kChoice, {row, tile}) % 5);
        to[rope_bytes + c] = std::byte{code};
        to[rope_bytes + kRowNumbers + tile] = std::byte{exponent};
        plain.Set(row * kRowD + c, std::ldexp(OfE4M3(code), exponent - 127));
      }
    }
  }

  int64_t row_bytes;
  Tensor rows, plain;
};

struct RowsCase {
  RowsCase(DType dtype, int64_t query_heads) : heads(query_heads), ori(dtype, 2, 50, 1), cmp(dtype, 2, 20, 2) {
    q = Tensor(dtype, {2, kRowQueries, heads, kRowD}, {});
    out = Tensor(dtype, {2, kRowQueries, heads, kRowD}, {});
    lists = Tensor(DType::kI32, {2, kRowQueries, 1, kRowSlots}, {});
    for (int64_t x = 0; x < 2 * kRowQueries * heads * kRowD; ++x) q.Set(x, RandomNormal(3, Tag::kQ, {x}));
    for (int64_t x = 0; x < 2 * kRowQueries * kRowSlots; ++x) lists.Set(x, static_cast<double>((7 * x) % 20));
  }

  [[nodiscard]] SharedKvArgs Args(bool quantised) const {
    SharedKvArgs args;
    args.q = q.view();
    args.ori_kv = (quantised ? ori.rows : ori.plain).view();
    args.cmp_kv = (quantised ? cmp.rows : cmp.plain).view();
    args.cmp_indices = lists.view();
    args.out = out.mutable_view();
    return args;
  }
  [[nodiscard]] static SharedKvOptions Options(bool quantised) {
    SharedKvOptions options{.cmp_ratio = 2, .ori_mask = SparseMask::kBand, .window_left = 30, .window_right = 0};
    if (quantised) options.row_format = {.rope = kRowRope, .tile = kRowTile};
    return options;
  }
  /// @param paged  whether the call gets the keys as pages of 10 rows
  [[nodiscard]] std::vector<double> Run(bool quantised, Context* context, bool paged = false) const {
    static constexpr int32_t kOriTable[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, kCmpTable[] = {0, 1, 2, 3};
    static constexpr int64_t kOriRows[] = {50, 50}, kCmpRows[] = {20, 20};
    out.Fill(0, 2 * kRowQueries * heads * kRowD, std::numeric_limits<double>::quiet_NaN());
    SharedKvArgs args = Args(quantised);
    if (paged) {
      args.ori_kv.shape = {10, 10, 1, args.ori_kv.shape[3]};
      args.cmp_kv.shape = {4, 10, 1, args.cmp_kv.shape[3]};
      args.ori_kv.stride = args.cmp_kv.stride = {};
      args.ori_block_table = {kOriTable, DType::kI32, {2, 5}, {}};
      args.cmp_block_table = {kCmpTable, DType::kI32, {2, 2}, {}};
      args.used_ori = kOriRows;
      args.used_cmp = kCmpRows;
    }
    const Status status = SharedKvAttention(args, Options(quantised), context);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<double> values;
    out.AppendTo(values, 0, 2 * kRowQueries * heads * kRowD);
    return values;
  }

  int64_t heads;
  KeyRowsOfBytes ori, cmp;
  Tensor q, out, lists;
};

TEST(SharedKvRows, GiveTheBitsOfTheirKeys) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t heads : {int64_t{1}, int64_t{6}, kRowHeads}) {
      const RowsCase c(dtype, heads);
      for (const Isa isa : IsaLevels()) {
        const std::vector<double> want = c.Run(false, ContextOf(isa));
        ASSERT_FALSE(std::isnan(want.front()));
        EXPECT_EQ(c.Run(true, ContextOf(isa)), want) << IsaName(isa) << " " << Name(dtype) << " heads " << heads;
        EXPECT_EQ(c.Run(true, ContextOf(isa, 7)), want) << IsaName(isa);
        EXPECT_EQ(c.Run(true, ContextOf(isa), /*paged=*/true), want) << IsaName(isa);
      }
    }
  }
}

TEST(SharedKvRows, AScaleOf255IsNan) {
  const RowsCase c(DType::kBF16, 2);
  // In the first batch element, only the first tokens do not see the last original key: their window ends before it.
  const int64_t last = 49;
  *c.ori.rows.Address(last * c.ori.row_bytes + 2 * kRowRope + kRowNumbers) = std::byte{255};
  const std::vector<double> out = c.Run(true, nullptr);
  const int64_t row = (kRowQueries - 1) * c.heads * kRowD;
  EXPECT_TRUE(std::isnan(out[static_cast<size_t>(row)]));
  EXPECT_FALSE(std::isnan(out[0]));
}

TEST(SharedKvRows, AreRefusedWithTheNameOfTheArgument) {
  const RowsCase c(DType::kBF16, 2);
  const auto message = [&](SharedKvArgs args, SharedKvOptions options) {
    return std::string(SharedKvAttention(args, options, nullptr).message());
  };
  SharedKvOptions options = RowsCase::Options(true);
  options.row_format.tile = -1;
  EXPECT_THAT(message(c.Args(true), options), ::testing::HasSubstr("row_format.tile=-1, want at least 0"));
  options.row_format = {.rope = kRowD, .tile = 1};
  EXPECT_THAT(message(c.Args(true), options), ::testing::HasSubstr("row_format.rope=72, want 0..71"));
  options.row_format = {.rope = 1, .tile = 0};
  EXPECT_THAT(message(c.Args(false), options), ::testing::HasSubstr("row_format.rope=1, want 0"));
  EXPECT_THAT(message(c.Args(false), RowsCase::Options(true)),
              ::testing::HasSubstr("ori_kv.shape[3]=72, want at least"));
  SharedKvArgs args = c.Args(true);
  args.cmp_kv.dtype = DType::kI8;
  EXPECT_THAT(message(args, RowsCase::Options(true)), ::testing::HasSubstr("cmp_kv.dtype=i8, want f8e4m3"));
}

}  // namespace
}  // namespace fa::test
