// The sparse commands with quantised and compressed keys write the bytes that the library's own calls give. The
// commands' errors name the flag at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fa/lightning_indexer.h"
#include "fa/sparse_flash_attention.h"
#include "npy/npy_file.h"
#include "support/cases/random_values.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

constexpr int64_t kRowQueries = 5, kRowKeys = 30, kRowHeads = 3, kRowColumns = 32, kRowRope = 4, kRowTile = 16,
                  kRowSelected = 6;
constexpr int64_t kRowBytes = kRowColumns + 4 * kRowRope + 4 * (kRowColumns / kRowTile);

/// Files for calls of one sequence in layout BSND, and the same arrays in memory.
class CliQuantized : public ::testing::Test {
 protected:
  [[nodiscard]] npy::Array Floats(const std::string& name, std::vector<int64_t> shape, Tag tag) const {
    npy::Array array(ElementType::kF32, std::move(shape));
    int64_t i = 0;
    for (float& x : array.as<float>()) x = static_cast<float>(RandomNormal(1, tag, {i++}));
    npy::Save(Path(name), array);
    return array;
  }
  /// Saves random int8 or e4m3 codes. Bit 6 is 0, so no e4m3 code is NaN.
  [[nodiscard]] npy::Array Codes(const std::string& name, std::vector<int64_t> shape, ElementType type, Tag tag) const {
    npy::Array array(type, std::move(shape));
    for (int64_t i = 0; i < array.size(); ++i) {
      array.bytes()[i] = static_cast<std::byte>(RandomBits(1, tag, {i}) % 256 & 0xbf);
    }
    npy::Save(Path(name), array);
    return array;
  }
  [[nodiscard]] npy::Array Rows(ElementType type) const {
    npy::Array rows = Codes("k.npy", {1, kRowKeys, 1, kRowBytes}, type, Tag::kK);
    for (int64_t key = 0; key < kRowKeys; ++key) {
      for (int64_t at = kRowColumns; at < kRowBytes; at += 4) {
        const auto number = static_cast<float>(0.1 * RandomNormal(2, Tag::kK, {key, at}));
        std::memcpy(rows.bytes() + key * kRowBytes + at, &number, sizeof number);
      }
    }
    npy::Save(Path("k.npy"), rows);
    return rows;
  }
  [[nodiscard]] static TensorView ViewOf(const npy::Array& array) {
    const DType dtype = array.type() == ElementType::kI32  ? DType::kI32
                        : array.type() == ElementType::kI8 ? DType::kI8
                        : array.type() == ElementType::kU8 ? DType::kF8E4M3
                                                           : DType::kF32;
    return {array.bytes(), dtype, Dims(std::span(array.shape())), {}};
  }
  [[nodiscard]] static MutableTensorView ViewOf(npy::Array& array) {
    const TensorView view = ViewOf(std::as_const(array));
    return {array.bytes(), view.dtype, view.shape, {}};
  }
  [[nodiscard]] npy::Array Lists() const {
    npy::Array lists(ElementType::kI32, {1, kRowQueries, 1, kRowSelected});
    for (int64_t i = 0; i < lists.size(); ++i) lists.as<int32_t>()[i] = static_cast<int32_t>(i * 11 % kRowKeys);
    npy::Save(Path("lists.npy"), lists);
    return lists;
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  [[nodiscard]] std::string Files(const std::vector<std::string>& flags) const {
    std::string text;
    for (const std::string& flag : flags) text += " --" + flag + " " + Path(flag + ".npy");
    return text;
  }
  /// Returns the bytes of a file that holds the array.
  [[nodiscard]] std::string Bytes(const npy::Array& array) const {
    npy::Save(Path("want.npy"), array);
    return scratch_.Read("want.npy");
  }

  ScratchFolder scratch_;
};

TEST_F(CliQuantized, ForwardWritesTheBytesOfTheLibrary) {
  for (const ElementType type : {ElementType::kI8, ElementType::kU8}) {
    const npy::Array q = Floats("q.npy", {1, kRowQueries, kRowHeads, kRowColumns + kRowRope}, Tag::kQ),
                     rows = Rows(type);
    const npy::Array lists = Lists();
    const std::string files = " --query " + Path("q.npy") + " --key " + Path("k.npy") + " --sparse-indices " +
                              Path("lists.npy") + " --out " + Path("out.npy");
    const CliResult result = RunCli("run sparse-forward --tile 16 --rope-columns 4" + files);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    npy::Array out(ElementType::kF32, {1, kRowQueries, kRowHeads, kRowColumns});
    SparseAttentionArgs args;
    args.q = ViewOf(q);
    args.k = ViewOf(rows);
    args.sparse_indices = ViewOf(lists);
    args.out = ViewOf(out);
    ASSERT_TRUE(SparseFlashAttention(args, {.row_format = {kRowColumns, kRowRope, kRowTile}}).ok());
    EXPECT_EQ(scratch_.Read("out.npy"), Bytes(out));
    const auto refused = [&](const std::string& flags, const char* message) {
      const CliResult bad = RunCli("run sparse-forward" + flags + files);
      EXPECT_EQ(bad.exit_code, 2);
      EXPECT_THAT(bad.err, HasSubstr(message));
    };
    refused(" --tile 8 --rope-columns 4", "--key: shape[3]=56, want 64 (bytes per row)");
    refused(" --tile -1 --rope-columns 4", "--tile: -1, want at least 1");
    refused(" --tile 0", "--tile: 0, want at least 1");
    refused(" --rope-columns 4", "--rope-columns requires --tile");
    refused(" --tile 16 --rope-columns 40", "--rope-columns: 40, want 0..35");
    refused("", "want f32 (dtype of --query)");
  }
}

TEST_F(CliQuantized, IndexerWritesTheBytesOfTheLibrary) {
  for (const ElementType type : {ElementType::kI8, ElementType::kU8}) {
    const npy::Array q = Codes("query.npy", {1, kRowQueries, kRowHeads, kRowColumns}, type, Tag::kQIndex);
    const npy::Array k = Codes("key.npy", {1, kRowKeys, 1, kRowColumns}, type, Tag::kKIndex);
    const npy::Array weights = Floats("weights.npy", {1, kRowQueries, kRowHeads}, Tag::kWeights);
    const npy::Array q_scale = Floats("query-scale.npy", {1, kRowQueries, kRowHeads}, Tag::kQRope);
    const npy::Array k_scale = Floats("key-scale.npy", {1, kRowKeys}, Tag::kKRope);
    npy::Array offset(ElementType::kI32, {1});
    offset.as<int32_t>()[0] = 100;
    npy::Save(Path("index-offset.npy"), offset);
    const std::string files = Files(
        {"query", "key", "weights", "query-scale", "key-scale", "index-offset", "sparse-indices", "sparse-values"});
    const CliResult result = RunCli("run indexer --sparse-count 6 --cmp-ratio 4 --residual-kv 3" + files);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    npy::Array indices(ElementType::kI32, {1, kRowQueries, 1, 6}), values(ElementType::kF32, {1, kRowQueries, 1, 6});
    LightningIndexerArgs args;
    args.q = ViewOf(q);
    args.k = ViewOf(k);
    args.weights = ViewOf(weights);
    args.q_scale = ViewOf(q_scale);
    args.k_scale = ViewOf(k_scale);
    args.index_offset = ViewOf(offset);
    const std::vector<int64_t> residual = {3};
    args.residual_kv = residual;
    args.sparse_indices = ViewOf(indices);
    args.sparse_values = ViewOf(values);
    ASSERT_TRUE(LightningIndexer(args, {.cmp_ratio = 4}).ok());
    EXPECT_EQ(scratch_.Read("sparse-indices.npy"), Bytes(indices));
    EXPECT_EQ(scratch_.Read("sparse-values.npy"), Bytes(values));
    const auto refused = [&](const std::string& flags, const char* message) {
      const CliResult bad = RunCli("run indexer --sparse-count 6" + flags + files);
      EXPECT_EQ(bad.exit_code, 2);
      EXPECT_THAT(bad.err, HasSubstr(message));
    };
    refused(" --cmp-ratio 0", "--cmp-ratio: 0, want 1..");
    refused(" --residual-kv 1", "--residual-kv: [0]=1, want 0..0 (--cmp-ratio - 1)");
    refused(" --used-q 3", "--used-q: given, want none");
  }
}

TEST_F(CliQuantized, BenchChecksItsResultAndPlanSaysTheRows) {
  for (const char* rows : {"int8", "e4m3"}) {
    const std::string flags = std::string(" --rows ") + rows;
    for (const char* pages : {"", " --block-size 16"}) {
      const CliResult attention =
          RunCli("bench sparse-forward --shape 1,16,4,300,64,16,100 --seconds 0.01" + flags + pages);
      EXPECT_EQ(attention.exit_code, 0) << attention.err;
      const CliResult indexer = RunCli("bench indexer --shape 1,16,8,300,64,100 --seconds 0.01" + flags + pages);
      EXPECT_EQ(indexer.exit_code, 0) << indexer.err;
    }
    const CliResult plan = RunCli("plan sparse-forward --shape 1,16,4,300,64,16,100" + flags);
    EXPECT_THAT(plan.out, HasSubstr(rows[0] == 'i' ? "rows of i8 with scales" : "rows of f8e4m3 with scales"));
    EXPECT_EQ(RunCli("plan indexer --shape 1,16,8,300,64,100" + flags).exit_code, 0);
  }
  EXPECT_THAT(RunCli("plan sparse-forward --rows int4").err, HasSubstr("--rows: 'int4', want int8 or e4m3"));
  EXPECT_THAT(RunCli("plan sparse-forward --rows int8 --separate-value").err, HasSubstr("--separate-value: given"));
  EXPECT_THAT(RunCli("plan sparse-forward --rows int8 --tile 0").err, HasSubstr("--tile: 0, want at least 1"));
  EXPECT_THAT(RunCli("plan sparse-forward --tile 16").err, HasSubstr("--tile requires --rows"));
  EXPECT_EQ(RunCli("plan sparse-forward --rows int8 --tile 9223372036854775807").exit_code, 0);
}

}  // namespace
}  // namespace fa::test
