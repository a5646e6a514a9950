// The makers of PairMask: which pairs they keep, what their tiles are, how much memory they take, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "fa/block_mask.h"
#include "fa/half.h"
#include "fa/pair_mask.h"
#include "fa/view.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using Keeps = std::function<bool(int64_t, int64_t, int64_t, int64_t)>;

/// Expects that the mask keeps exactly the pairs for which `keeps` returns true. Checks keeps(), tiles() and bytes() of
/// the mask.
/// @param shared  the number of neighbouring rows that are stored as one row of bits
void ExpectPairs(const Result<PairMask>& mask, const Dims& shape, const Keeps& keeps, int64_t shared = 1) {
  ASSERT_TRUE(mask.ok()) << mask.status().message();
  ASSERT_EQ(mask->shape(), shape);
  PairTileCounts want;
  int64_t bits = 0;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t n = 0; n < shape[1]; ++n) {
      for (int64_t i0 = 0; i0 < shape[2]; i0 += 128) {
        for (int64_t j0 = 0; j0 < shape[3]; j0 += 128) {
          int64_t kept = 0, wrong = 0;
          const int64_t rows = std::min<int64_t>(128, shape[2] - i0), keys = std::min<int64_t>(128, shape[3] - j0);
          for (int64_t i = i0; i < i0 + rows; ++i) {
            for (int64_t j = j0; j < j0 + keys; ++j) {
              kept += keeps(b, n, i, j) ? 1 : 0;
              wrong += keeps(b, n, i, j) == mask->keeps(b, n, i, j) ? 0 : 1;
            }
          }
          ASSERT_EQ(wrong, 0) << "tile " << b << " " << n << " " << i0 << " " << j0;
          const bool partial = kept > 0 && kept < rows * keys;
          ++(partial ? want.partial : kept > 0 ? want.full : want.empty);
          if (partial) bits += (rows + shared - 1) / shared * (keys > 64 ? 16 : 8);
        }
      }
    }
  }
  EXPECT_EQ(mask->tiles().empty, want.empty);
  EXPECT_EQ(mask->tiles().full, want.full);
  EXPECT_EQ(mask->tiles().partial, want.partial);
  const auto over = [](int64_t size, int64_t step) { return (size + step - 1) / step; };
  const int64_t tile_rows = shape[0] * shape[1] * over(shape[2], 128);
  EXPECT_EQ(mask->bytes(), bits + tile_rows * (over(shape[3], 128) + 16 * over(shape[3], 8192)));
}

std::vector<uint8_t> RandomBytes(size_t count, std::mt19937& random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = random() % 2 == 0 ? 0 : static_cast<uint8_t>(1 + random() % 255);
  return bytes;
}

TEST(PairMaskMakers, FromBytesKeepsThePairsForAllSmallShapes) {
  std::mt19937 random(1);
  for (const int64_t rows : {0, 1, 2, 5, 127, 128, 129}) {
    for (const int64_t keys : {0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 200}) {
      const Dims shape{2, 1, rows, keys};
      const std::vector<uint8_t> bytes = RandomBytes(static_cast<size_t>(2 * rows * keys), random);
      for (const bool drops : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(keys) + (drops ? " drops" : " keeps"));
        ExpectPairs(PairMask::FromBytes(View(bytes.data(), shape), drops), shape,
                    [&](int64_t b, int64_t, int64_t i, int64_t j) {
                      return (bytes[static_cast<size_t>((b * rows + i) * keys + j)] != 0) != drops;
                    });
      }
    }
  }
}

TEST(PairMaskMakers, FromBytesReadsAnyStrides) {
  std::mt19937 random(2);
  const std::vector<uint8_t> bytes = RandomBytes(300 * 2 * 150, random);
  // Keys are 2 elements apart, and rows are 600 elements apart. All heads and batch elements read the same bytes.
  const TensorView view{bytes.data(), DType::kI8, {2, 3, 150, 300}, {0, 0, 600, 2}};
  ExpectPairs(PairMask::FromBytes(view, true), {2, 3, 150, 300},
              [&](int64_t, int64_t, int64_t i, int64_t j) { return bytes[static_cast<size_t>(i * 600 + j * 2)] == 0; });
}

TEST(PairMaskMakers, ManyTilesHaveBitsOnlyWhereSomePairsAreKept) {
  // A row of tiles has 70 tiles. PairMask stores tiles in groups of 64, so these make two groups. In turn, tiles keep
  // all of their pairs, some of them, or none.
  const Dims shape{1, 1, 260, 70 * 128 - 60};
  const auto keeps = [](int64_t, int64_t, int64_t i, int64_t j) {
    const int64_t kind = (i / 128 + j / 128) % 3;
    return kind == 0 || (kind == 1 && (i * 31 + j * 17) % 5 < 2);
  };
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < shape[2]; ++i) {
    for (int64_t j = 0; j < shape[3]; ++j) bytes.push_back(keeps(0, 0, i, j) ? 1 : 0);
  }
  for (const int threads : {1, 2, 7}) {
    ExpectPairs(PairMask::FromBytes(View(bytes, shape), false, ContextOf(DetectIsa(), threads)), shape, keeps);
  }
}

TEST(PairMaskMakers, FromAdditiveDropsHalfOfTheLeastNumber) {
  const float f32 = std::numeric_limits<float>::max();
  const struct {
    DType dtype;
    float limit, above;
  } types[] = {{DType::kF32, -f32 / 2, std::nextafter(-f32 / 2, 0.0F)},
               {DType::kBF16, -F32FromBf16(0x7F7F) / 2, F32FromBf16(0xFEFE)},
               {DType::kF16, -32752, -32736}};
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, limit, above] : types) {
    const float numbers[] = {0, -0.0F, limit, above, -kInf, kInf, kNan, 2 * limit, 1};
    for (const float number : numbers) {
      SCOPED_TRACE(std::string(Name(dtype)) + " " + std::to_string(number));
      std::vector<float> floats(70 * 131, 0);
      floats[69 * 131 + 130] = number;
      std::vector<uint16_t> halves;
      for (const float x : floats) halves.push_back(dtype == DType::kBF16 ? Bf16FromF32(x) : F16FromF32(x));
      const Dims shape{70, 131};
      const TensorView view = dtype == DType::kF32 ? View(floats.data(), shape) : View(halves.data(), dtype, shape);
      bool adds = number == 0;  // FromAdditive must overwrite this value
      const bool dropped = number <= limit;
      ExpectPairs(PairMask::FromAdditive(view, &adds), {1, 1, 70, 131},
                  [&](int64_t, int64_t, int64_t i, int64_t j) { return !dropped || i != 69 || j != 130; });
      EXPECT_EQ(adds, !dropped && number != 0);
    }
  }
}

TEST(PairMaskMakers, FromIndicesKeepsListedKeys) {
  std::mt19937 random(3);
  const int64_t rows = 140, keys = 9000, count = 40;
  std::vector<int64_t> wide;
  std::vector<int32_t> narrow;
  for (int64_t i = 0; i < 2 * rows * count; ++i) {
    wide.push_back(static_cast<int64_t>(random() % 9200) - 200);  // some entries are negative, some are listed twice
    if (wide.back() < 0) wide.back() = -1;
    narrow.push_back(static_cast<int32_t>(wide.back()));
  }
  const auto keeps = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    const auto first = wide.begin() + (b * rows + i) * count;
    return std::find(first, first + count, j) != first + count;
  };
  const Dims shape{2, 1, rows, count};
  const PairLists lists{.rows = rows, .keys = keys};
  ExpectPairs(PairMask::FromIndices(View(wide, shape), lists), {2, 1, rows, keys}, keeps);
  ExpectPairs(PairMask::FromIndices(View(narrow, shape), lists), {2, 1, rows, keys}, keeps);
}

/// Returns how many neighbouring rows are stored as one row of bits: the largest power of two up to 128 that divides a
/// block's rows.
int64_t SharedRows(int64_t block_rows) {
  int64_t shared = 1;
  while (shared < 128 && block_rows % (2 * shared) == 0) shared *= 2;
  return shared;
}

TEST(PairMaskMakers, FromIndicesKeepsListedBlocks) {
  std::mt19937 random(4);
  const int64_t rows = 301, keys = 1000;
  for (const int64_t block_rows : {1, 64, 100, 128}) {
    for (const int64_t block_keys : {16, 50, 128, 700}) {
      const int64_t lists = (rows + block_rows - 1) / block_rows, blocks = (keys + block_keys - 1) / block_keys;
      std::vector<int32_t> entries(static_cast<size_t>(lists * 3));
      for (int32_t& entry : entries) entry = static_cast<int32_t>(random() % static_cast<uint32_t>(blocks + 1)) - 1;
      ExpectPairs(
          PairMask::FromIndices(View(entries, {lists, 3}),
                                {.rows = rows, .keys = keys, .block_rows = block_rows, .block_keys = block_keys}),
          {1, 1, rows, keys},
          [&](int64_t, int64_t, int64_t i, int64_t j) {
            const auto first = entries.begin() + i / block_rows * 3;
            return std::find(first, first + 3, j / block_keys) != first + 3;
          },
          SharedRows(block_rows));
    }
  }
}

TEST(PairMaskMakers, FromBlocksKeepsBlocks) {
  std::mt19937 random(7);
  const int64_t rows = 301, keys = 8500;
  for (const int64_t block_rows : {1, 6, 64, 100, 128, 256, 1000}) {
    for (const int64_t block_keys : {1, 50, 128, 700, 9000}) {
      SCOPED_TRACE(std::to_string(block_rows) + "x" + std::to_string(block_keys));
      const int64_t lists = (rows + block_rows - 1) / block_rows, blocks = (keys + block_keys - 1) / block_keys;
      std::vector<uint8_t> bytes = RandomBytes(static_cast<size_t>(2 * lists * blocks), random);
      const auto keeps = [&](int64_t, int64_t n, int64_t i, int64_t j) {
        return bytes[static_cast<size_t>((n * lists + i / block_rows) * blocks + j / block_keys)] != 0;
      };
      const PairLists sizes{.rows = rows, .keys = keys, .block_rows = block_rows, .block_keys = block_keys};
      ExpectPairs(PairMaskFromBlocks(View(bytes, {1, 2, lists, blocks}), sizes), {1, 2, rows, keys}, keeps,
                  SharedRows(block_rows));
      // The bytes of the blocks may have any strides. Here they are stored column by column.
      std::vector<uint8_t> turned(bytes.size());
      for (int64_t x = 0; x < 2 * lists; ++x) {
        for (int64_t y = 0; y < blocks; ++y) {
          turned[static_cast<size_t>(y * 2 * lists + x)] = bytes[static_cast<size_t>(x * blocks + y)];
        }
      }
      ExpectPairs(
          PairMaskFromBlocks({turned.data(), DType::kBool, {1, 2, lists, blocks}, {0, lists, 1, 2 * lists}}, sizes),
          {1, 2, rows, keys}, keeps, SharedRows(block_rows));
    }
  }
}

TEST(PairMaskMakers, AnIntersectionOfBlocksAndPairsKeepsWhatBothKeep) {
  std::mt19937 random(8);
  const int64_t rows = 200, keys = 300;
  const std::vector<uint8_t> blocks = RandomBytes(4 * 5, random),
                             pairs = RandomBytes(static_cast<size_t>(rows * keys), random);
  const auto a = PairMaskFromBlocks(View(blocks, {4, 5}), {rows, keys, 64, 64});
  const auto b = PairMask::FromBytes(View(pairs, {rows, keys}), /*drops=*/false);
  ASSERT_TRUE(a.ok() && b.ok());
  ExpectPairs(PairMask::Intersection(*a, *b), {1, 1, rows, keys}, [&](int64_t, int64_t, int64_t i, int64_t j) {
    return blocks[static_cast<size_t>(i / 64 * 5 + j / 64)] != 0 && pairs[static_cast<size_t>(i * keys + j)] != 0;
  });
}

TEST(PairMaskMakers, FromBitsKeepsSetBits) {
  std::mt19937_64 random(5);
  for (const int64_t keys : {1, 63, 64, 65, 200, 8200}) {
    const int64_t words = (keys + 63) / 64, rows = 131;
    std::vector<int64_t> bits(static_cast<size_t>(rows * words));
    for (int64_t& word : bits) word = static_cast<int64_t>(random());  // bits behind the last key have no meaning
    ExpectPairs(PairMask::FromBits(View(bits, {rows, words}), keys), {1, 1, rows, keys},
                [&](int64_t, int64_t, int64_t i, int64_t j) {
                  return (bits[static_cast<size_t>(i * words + j / 64)] >> j % 64 & 1) != 0;
                });
  }
}

TEST(PairMaskMakers, TheBuilderJoinsSlabs) {
  std::mt19937 random(6);
  const Dims shape{2, 3, 300, 200};
  const std::vector<uint8_t> bytes = RandomBytes(2 * 3 * 300 * 200, random);
  auto builder = PairMaskBuilder::Make(shape);
  ASSERT_TRUE(builder.ok());
  const auto slab = [&](int64_t batch, int64_t head, int64_t row, int64_t heads, int64_t rows) {
    return TensorView{bytes.data() + ((batch * 3 + head) * 300 + row) * 200,
                      DType::kU8,
                      {1, heads, rows, 200},
                      {300 * 200 * 3, 300 * 200, 200, 1}};
  };
  for (const int64_t batch : {1, 0}) {
    EXPECT_TRUE(builder->Add(batch, 0, 256, slab(batch, 0, 256, 3, 44), true).ok());
    EXPECT_TRUE(builder->Add(batch, 0, 0, slab(batch, 0, 0, 1, 256), true).ok());
    EXPECT_TRUE(builder->Add(batch, 1, 0, slab(batch, 1, 0, 2, 256), true).ok());
  }
  ExpectPairs(builder->Finish(), shape, [&](int64_t b, int64_t n, int64_t i, int64_t j) {
    return bytes[static_cast<size_t>(((b * 3 + n) * 300 + i) * 200 + j)] == 0;
  });
  EXPECT_FALSE(builder->Finish().ok());
}

TEST(PairMaskMakers, TheBuilderRefusesWrongSlabs) {
  const std::vector<uint8_t> bytes(2 * 300 * 200);
  EXPECT_EQ(PairMaskBuilder::Make({1, 2, 3}).status().message(),
            "invalid argument: shape=[1,2,3], want [B|1,N|Nkv|1,Sq,Sk]");
  auto builder = PairMaskBuilder::Make({1, 2, 300, 200});
  ASSERT_TRUE(builder.ok());
  const auto refused = [&](int64_t batch, int64_t head, int64_t row, const Dims& shape, const std::string& text) {
    EXPECT_EQ(builder->Add(batch, head, row, View(bytes.data(), shape), true).message(), "invalid argument: " + text);
  };
  refused(1, 0, 0, {1, 1, 128, 200}, "batch=1, want 0..0 (shape)");
  refused(0, 1, 0, {1, 2, 128, 200}, "head=1, want 0..0 (shape)");
  refused(0, 0, 100, {1, 1, 128, 200}, "row=100, want 0..172 in steps of 128 (shape)");
  refused(0, 0, 256, {1, 1, 128, 200}, "row=256, want 0..172 in steps of 128 (shape)");
  refused(0, 0, 0, {1, 1, 100, 200}, "mask.shape[2]=100, want a multiple of 128");
  refused(0, 0, 0, {1, 1, 128, 199}, "mask.shape[3]=199, want 200 (shape)");
  EXPECT_TRUE(builder->Add(0, 0, 0, View(bytes.data(), {1, 2, 128, 200}), true).ok());
  refused(0, 1, 0, {1, 1, 128, 200}, "row=0, added before");
  EXPECT_EQ(builder->Finish().status().message(), "invalid argument: row=128, want it added (batch=0, head=0)");
}

TEST(PairMaskMakers, RefuseWrongSources) {
  const std::vector<float> floats(35);
  const std::vector<uint8_t> bytes(35);
  std::vector<int32_t> entries = {0, 3, -1, 7, 12, 2};
  const auto refused = [](const Result<PairMask>& mask, const std::string& text) {
    EXPECT_EQ(mask.status().message(), "invalid argument: " + text);
  };
  refused(PairMask::FromBytes(View(floats, {5, 7}), true), "mask.dtype=f32, want u8, bool or i8");
  refused(PairMask::FromBytes(View(bytes, {1, 5, 7}), true), "mask.shape=[1,5,7], want [Sq,Sk] or [B|1,N|Nkv|1,Sq,Sk]");
  refused(PairMask::FromBytes({nullptr, DType::kU8, {5, 7}, {}}, true), "mask: null data");
  refused(PairMask::FromAdditive(View(bytes, {5, 7}), nullptr), "scores.dtype=u8, want f32, bf16 or f16");
  const TensorView lists = View(entries, {3, 2});
  refused(PairMask::FromIndices(View(bytes, {5, 7}), {5, 7}), "indices.dtype=u8, want i32 or i64");
  refused(PairMask::FromIndices(lists, {4, 13}), "indices.shape=[1,1,3,2], want 4 lists (rows)");
  refused(PairMask::FromIndices(lists, {3, 12}), "indices[0][0][2][0]=12, want < 12 (keys)");
  refused(PairMask::FromIndices(lists, {3, 10, 1, 2}), "indices[0][0][1][1]=7, want < 5 (keys)");
  refused(PairMask::FromIndices(lists, {3, -1}), "keys=-1, want >= 0");
  refused(PairMask::FromIndices(lists, {3, 20, 1, 0}), "block_keys=0, want >= 1");
  refused(PairMask::FromIndices(lists, {3, 20, -1}), "block_rows=-1, want >= 1");
  refused(PairMaskFromBlocks(lists, {3, 20}), "blocks.dtype=i32, want u8, bool or i8");
  refused(PairMaskFromBlocks(View(bytes, {7, 5}), {13, 20, 2, 5}), "blocks.shape[1]=5, want 4 (keys)");
  refused(PairMaskFromBlocks(View(bytes, {1, 1, 7, 5}), {15, 20, 2, 4}), "blocks.shape[2]=7, want 8 (rows)");
  refused(PairMaskFromBlocks(View(bytes, {7}), {7, 1}),
          "blocks.shape=[7], want [row blocks,key blocks] or [B|1,N|Nkv|1,row blocks,key blocks]");
  refused(PairMaskFromBlocks(View(bytes, {7, 5}), {7, 5, 1, 0}), "block_keys=0, want >= 1");
  refused(PairMaskFromBlocks({nullptr, DType::kU8, {7, 5}, {}}, {7, 5}), "blocks: null data");
  EXPECT_TRUE(PairMaskFromBlocks(View(bytes, {7, 5}), {13, 20, 2, 4}).ok());
  const std::vector<int64_t> words(6);
  refused(PairMask::FromBits(View(words, {3, 2}), 129), "words.shape[1]=2, want 3 (keys)");
  refused(PairMask::FromBits(lists, 128), "words.dtype=i32, want i64");
  EXPECT_TRUE(PairMask::FromIndices(lists, {3, 13}).ok());
}

TEST(PairMaskMakers, RefuseTooManyPairs) {
  const int64_t huge = int64_t{1} << 29;
  EXPECT_EQ(PairMaskBuilder::Make({huge, huge, huge, huge}).status().code(), StatusCode::kInvalidArgument);
  const std::vector<int32_t> entry = {0};
  EXPECT_EQ(PairMask::FromIndices(View(entry, {1, 1}), {.rows = huge, .keys = huge << 4, .block_rows = huge})
                .status()
                .message(),
            "invalid argument: keys=8589934592, want fewer pairs");
}

}  // namespace
}  // namespace fa::test
