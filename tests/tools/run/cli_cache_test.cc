// Tests `fa run` and `fa plan` for merge-lse, scatter and gather.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using npy::ElementType;
using ::testing::HasSubstr;

class CliCache : public ::testing::Test {
 protected:
  /// Saves an array, and returns its path.
  template <typename T>
  std::string Save(const std::string& name, ElementType type, std::vector<int64_t> shape,
                   const std::vector<T>& values) {
    npy::Save(scratch_.Path(name), ArrayOf(type, std::move(shape), values));
    return scratch_.Path(name);
  }
  template <typename T>
  std::vector<T> Load(const std::string& name) {
    const npy::Array array = npy::Load(scratch_.Path(name));
    const std::span<const T> values = array.as<T>();
    return {values.begin(), values.end()};
  }

  ScratchFolder scratch_;
};

TEST_F(CliCache, MergesByLse) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::string files = " --lse " + Save<float>("a", ElementType::kF32, {2}, {1, kInf}) + " " +
                            Save<float>("b", ElementType::kF32, {2}, {1, kInf}) + " --local-out " +
                            Save<float>("c", ElementType::kF32, {2, 1}, {2, 7}) + " " +
                            Save<float>("d", ElementType::kF32, {2, 1}, {4, 7}) + " --out " + scratch_.Path("o") +
                            " --lse-out " + scratch_.Path("l");
  const CliResult result = RunCli("run merge-lse" + files);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Load<float>("o"), (std::vector<float>{3, 0}));
  EXPECT_FLOAT_EQ(Load<float>("l")[0], 1 + 0.6931472F);
  EXPECT_EQ(Load<float>("l")[1], -kInf);
  const CliResult wrong = RunCli("run merge-lse --lse " + scratch_.Path("a") + " --local-out " + scratch_.Path("c") +
                                 " " + scratch_.Path("d") + " --out " + scratch_.Path("o"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--lse: 1 tensors, want 2 (--local-out)"));
}

TEST_F(CliCache, ScattersAndGathers) {
  std::vector<int8_t> key(6), cache(12, 7);
  std::iota(key.begin(), key.end(), int8_t{1});
  const std::string rows = Save("key", ElementType::kI8, {3, 1, 2}, key);
  const std::string pages = Save("cache", ElementType::kI8, {3, 2, 1, 2}, cache);
  const std::string slots = Save<int32_t>("slots", ElementType::kI32, {3}, {5, -1, 0});
  const std::string scatter = "run scatter --key " + rows + " --key-cache " + pages + " --key-cache-out " +
                              scratch_.Path("written") + " --slot-mapping ";
  ASSERT_EQ(RunCli(scatter + slots).exit_code, 0);
  EXPECT_EQ(Load<int8_t>("written"), (std::vector<int8_t>{5, 6, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2}));
  EXPECT_EQ(Load<int8_t>("cache"), cache) << "the file that was read stays";
  const CliResult past = RunCli(scatter + Save<int32_t>("past", ElementType::kI32, {3}, {5, 6, 0}));
  EXPECT_EQ(past.exit_code, 2);
  EXPECT_THAT(past.err, HasSubstr("--slot-mapping: [1]=6, want less than 6 (--key-cache)"));
  EXPECT_EQ(RunCli(scatter + slots + " --value " + rows).exit_code, 2);
  EXPECT_EQ(RunCli(scatter + slots + " --form NHSD").exit_code, 2);

  const std::string gather = "run gather --key-cache " + scratch_.Path("written") + " --value-cache " + pages +
                             " --block-table " + Save<int64_t>("table", ElementType::kI64, {2, 2}, {2, 0, 1, 9}) +
                             " --seq-lens " + Save<int64_t>("lens", ElementType::kI64, {2}, {3, 3}) + " --key " +
                             scratch_.Path("k") + " --value " + scratch_.Path("v");
  const CliResult result = RunCli(gather + " --rows 7");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Load<int8_t>("k"), (std::vector<int8_t>{7, 7, 1, 2, 5, 6, 7, 7, 7, 7, 0, 0, 0, 0}));
  ASSERT_EQ(RunCli(gather).exit_code, 0);
  EXPECT_EQ(npy::Load(scratch_.Path("v")).shape(), (std::vector<int64_t>{6, 1, 2}));
}

TEST(CliCachePlan, SaysTheTasks) {
  for (const std::string plan : {"scatter --shape 8192,8,128,128,128", "gather --shape 8192,8,128,128,128 --form NZ"}) {
    const CliResult result = RunCli("plan " + plan + " --threads 3 --json");
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json described = json::parse(result.out);
    EXPECT_EQ(described["flops"], 0) << "bytes are moved";
    EXPECT_GE(described["tasks"], 3);
  }
  const CliResult loss = RunCli("plan indexer-loss-value --shape 3000,64 --dtype f16 --threads 3 --json");
  ASSERT_EQ(loss.exit_code, 0) << loss.err;
  EXPECT_GT(nlohmann::json::parse(loss.out)["tasks"].get<int64_t>(), 3);
  const CliResult merge = RunCli("plan merge-lse --shape 4,3000,64 --dtype f16 --threads 3 --json");
  ASSERT_EQ(merge.exit_code, 0) << merge.err;
  EXPECT_EQ(json::parse(merge.out)["flops"], 2 * 4 * 3000 * 64);
  EXPECT_EQ(RunCli("plan merge-lse --shape 4,3000").exit_code, 2);
  EXPECT_EQ(RunCli("plan scatter --shape 4,2,8,3,16 --form NZ").exit_code, 2) << "8 columns are no chunk of 16";
}

}  // namespace
}  // namespace fa::test
