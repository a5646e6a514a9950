#include "tiling/tile_shape.h"

#include <gtest/gtest.h>

#include "tests/tiling/sample_problems.h"

namespace fa::tiling {
namespace {

int64_t BlockK(int64_t d, int64_t dv, Isa isa) {
  Machine machine = MakeMachine(1);
  machine.isa = isa;
  return ChooseTileShape(MakeProblem({.lengths = {{4096, 4096}}, .d = d, .dv = dv}), machine).block_k;
}

int64_t BlockQ(const Sizes& sizes, const Machine& machine) {
  return ChooseTileShape(MakeProblem(sizes), machine).block_q;
}

TEST(TileShape, KeyBlocksShrinkWithTheHeadSize) {
  EXPECT_EQ(BlockK(64, 64, Isa::kAvx512), 256);
  EXPECT_EQ(BlockK(128, 128, Isa::kAvx512), 256);
  EXPECT_EQ(BlockK(256, 256, Isa::kAvx512), 128);
  EXPECT_EQ(BlockK(1024, 1024, Isa::kAvx512), 32);
  EXPECT_EQ(BlockK(64, 64, Isa::kAvx512Amx), 256);
  EXPECT_EQ(BlockK(1024, 1024, Isa::kAvx512Amx), 32);
  EXPECT_EQ(BlockK(1, 1, Isa::kPortable), 256);
}

TEST(TileShape, KeyBlocksShrinkWithTheWidthOfStrips) {
  const auto block_k = [](int64_t strip_rows, int64_t d) {
    Machine machine = MakeMachine(1);
    machine.isa = Isa::kAvx2;
    machine.strip_rows = strip_rows;
    return ChooseTileShape(MakeProblem({.lengths = {{4096, 4096}}, .d = d, .dv = d}), machine).block_k;
  };
  EXPECT_EQ(block_k(24, 64), 256);
  EXPECT_EQ(block_k(24, 128), 256);
  EXPECT_EQ(block_k(24, 256), 128);
  EXPECT_EQ(block_k(24, 512), 64);
  EXPECT_EQ(block_k(48, 64), 160);
  EXPECT_EQ(block_k(48, 256), 128);
}

TEST(TileShape, LevelsWithoutATileUnitHaveTheSameKeyBlocks) {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kNeon}) {
    for (const int64_t d : {40, 64, 96, 128, 192, 256, 512}) {
      EXPECT_EQ(BlockK(d, d, isa), BlockK(d, d, Isa::kAvx512)) << d << " " << static_cast<int>(isa);
    }
  }
}

TEST(TileShape, ManyTilesHave128Rows) {
  const Sizes sizes{.lengths = {{4096, 4096}}, .heads = 8, .heads_kv = 8, .d = 128, .dv = 128};
  EXPECT_EQ(BlockQ(sizes, MakeMachine(1)), 128);
  EXPECT_EQ(BlockQ(sizes, MakeMachine(2)), 128);
  EXPECT_EQ(BlockQ(sizes, MakeMachine(16)), 128);
}

TEST(TileShape, LargeHeadsHaveFewerRowsWhereL2IsSmall) {
  const Sizes sizes{.lengths = {{4096, 4096}}, .d = 1024, .dv = 1024};
  Machine machine = MakeMachine(1);
  EXPECT_EQ(BlockQ(sizes, machine), 32);
  machine.l2_bytes = 4 << 20;
  EXPECT_EQ(BlockQ(sizes, machine), 128);
  machine.l2_bytes = 0;
  EXPECT_EQ(BlockQ(sizes, machine), 32);
}

TEST(TileShape, FewTilesForManyWorkersHaveFewerRows) {
  const Sizes sizes{.lengths = {{4096, 4096}}, .d = 128, .dv = 128};
  EXPECT_EQ(BlockQ(sizes, MakeMachine(32)), 128);
  EXPECT_EQ(BlockQ(sizes, MakeMachine(64)), 64);
  EXPECT_EQ(BlockQ(sizes, MakeMachine(128)), 32);
}

TEST(TileShape, TinyProblemsAreNotCutForMoreWorkers) {
  EXPECT_EQ(BlockQ({.lengths = {{64, 64}}}, MakeMachine(16)), 64);
}

TEST(TileShape, ShortSequencesAreOneTileAHead) {
  EXPECT_EQ(BlockQ({.lengths = {{128, 128}}, .heads = 12, .heads_kv = 12}, MakeMachine(2)), 128);
  EXPECT_EQ(BlockQ({.lengths = {{33, 128}}}, MakeMachine(1)), 64);
  EXPECT_EQ(BlockQ({.lengths = {{5, 128}, {20, 7}}}, MakeMachine(1)), 32);
}

TEST(TileShape, NarrowStripsAreHonoured) {
  Machine machine = MakeMachine(1);
  machine.strip_rows = 16;
  EXPECT_EQ(BlockQ({.lengths = {{5, 128}}}, machine), 16);
}

TEST(TileShape, WideStripsHaveFewerKeysAndWholeStripsOfRows) {
  Machine machine = MakeMachine(1);
  machine.strip_rows = 48;
  const TileShape shape = ChooseTileShape(MakeProblem({.lengths = {{4096, 4096}}, .d = 64, .dv = 64}), machine);
  EXPECT_EQ(shape.block_q, 144);
  EXPECT_EQ(shape.block_k, 160);  // 48 x 160 probabilities are 30 KiB
}

TEST(TileShape, TheReasonNamesBytesTilesAndWorkers) {
  const TileShape shape = ChooseTileShape(
      MakeProblem({.lengths = {{4096, 4096}}, .heads = 8, .heads_kv = 8, .d = 128, .dv = 128}), MakeMachine(2));
  EXPECT_EQ(shape.reason,
            "K and V of 256 keys take 256 KiB of L2, Q and O of 128 rows 128 KiB; 256 tiles for 2 workers");
}

}  // namespace
}  // namespace fa::tiling
