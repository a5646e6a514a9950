// `fa run prompt` writes the bytes that the library's own call gives. Errors of `fa run prompt`, `fa bench prompt` and
// `fa plan prompt` name the flag at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "fa/prompt_flash_attention.h"
#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using npy::ElementType;
using ::testing::HasSubstr;

/// Files with int8 queries [2,4,9,8], keys and values [2,2,12,8], and the scales of a prompt call.
class Int8Files {
 public:
  Int8Files() {
    std::mt19937 random(1);
    for (auto& [name, array] : operands_) {
      for (std::byte& byte : array.as<std::byte>()) byte = static_cast<std::byte>(random());
      npy::Save(Path(name), array);
    }
    const std::vector<float> values = {1e-3F, 127, 1e-4F};
    for (size_t i = 0; i < values.size(); ++i) {
      scales_.emplace_back(ElementType::kF32, std::vector<int64_t>{1});
      scales_.back().as<float>()[0] = values[i];
      npy::Save(Path("scale" + std::to_string(i)), scales_.back());
    }
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return folder_.Path(name + ".npy"); }
  [[nodiscard]] std::string Flags() const {
    return "run prompt --layout BNSD --query " + Path("q") + " --key " + Path("k") + " --value " + Path("v") +
           " --deq-scale1 " + Path("scale0") + " --quant-scale1 " + Path("scale1") + " --deq-scale2 " + Path("scale2") +
           " --out " + Path("out") + " ";
  }
  /// Makes the same call through the library and returns its output.
  [[nodiscard]] std::vector<uint16_t> Direct(const PromptAttentionOptions& options, std::vector<int64_t> lengths) {
    std::vector<uint16_t> out(2 * 4 * 9 * 8);
    const auto view = [](npy::Array& array, DType dtype) {
      return TensorView{array.bytes(), dtype, Dims(std::span<const int64_t>(array.shape())), {}};
    };
    PromptAttentionArgs args;
    args.q = view(operands_[0].second, DType::kI8);
    args.k = view(operands_[1].second, DType::kI8);
    args.v = view(operands_[2].second, DType::kI8);
    args.deq_scale1 = view(scales_[0], DType::kF32);
    args.quant_scale1 = view(scales_[1], DType::kF32);
    args.deq_scale2 = view(scales_[2], DType::kF32);
    args.lengths_kv = lengths;
    args.out = {out.data(), DType::kF16, {2, 4, 9, 8}, {}};
    EXPECT_TRUE(PromptFlashAttention(args, options).ok());
    return out;
  }

 private:
  ScratchFolder folder_;
  std::vector<std::pair<std::string, npy::Array>> operands_ = [] {
    std::vector<std::pair<std::string, npy::Array>> operands;
    operands.emplace_back("q", npy::Array(ElementType::kI8, {2, 4, 9, 8}));
    operands.emplace_back("k", npy::Array(ElementType::kI8, {2, 2, 12, 8}));
    operands.emplace_back("v", npy::Array(ElementType::kI8, {2, 2, 12, 8}));
    return operands;
  }();
  std::vector<npy::Array> scales_;
};

TEST(CliPrompt, Int8GivesTheBitsOfTheLibrary) {
  Int8Files files;
  const CliResult result = RunCli(files.Flags() + "--causal --actual-seq-lengths-kv 12,7");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const npy::Array out = npy::Load(files.Path("out"));
  ASSERT_EQ(out.type(), ElementType::kF16);
  PromptAttentionOptions options;
  options.mask = Mask::Causal();
  const auto got = out.as<uint16_t>();
  EXPECT_EQ(std::vector<uint16_t>(got.begin(), got.end()), files.Direct(options, {12, 7}));
}

TEST(CliPrompt, HasTheForwardsFeatures) {
  const ScratchFolder folder;
  std::mt19937 random(2);
  const auto save = [&](const std::string& name, const std::vector<int64_t>& shape) {
    npy::Array array(ElementType::kF32, shape);
    for (float& x : array.as<float>()) x = static_cast<float>(random() % 17) * 0.125F - 1;
    npy::Save(folder.Path(name + ".npy"), array);
    return " --" + name + " " + folder.Path(name + ".npy");
  };
  std::string flags = " --layout BNSD --causal --softcap 2 --pse-type 2 --q-start 1 --kv-start 2";
  flags += save("query", {1, 4, 9, 8}) + save("key", {1, 2, 12, 8}) + save("value", {1, 2, 12, 8});
  flags += save("query-rope", {1, 4, 9, 4}) + save("key-rope", {1, 2, 12, 4}) + save("pse", {4}) + save("sink", {4});
  const std::vector<std::string> outputs = {"out", "softmax-max", "softmax-sum", "lse"};
  const auto run = [&](const std::string& op) {
    std::string command = "run " + op + flags;
    for (const std::string& name : outputs) command += " --" + name + " " + folder.Path(op + "-" + name + ".npy");
    const CliResult result = RunCli(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  run("forward");
  run("prompt");
  for (const std::string& name : outputs) {
    EXPECT_EQ(folder.Read("prompt-" + name + ".npy"), folder.Read("forward-" + name + ".npy")) << name;
  }
}

TEST(CliPrompt, AnInt8OutputNeedsItsScale) {
  const Int8Files files;
  const CliResult result = RunCli(files.Flags() + "--out-dtype int8");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("fa: --quant-scale2: missing, want it"));
  const CliResult with = RunCli(files.Flags() + "--out-dtype int8 --quant-scale2 " + files.Path("scale1"));
  ASSERT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(npy::Load(files.Path("out")).type(), ElementType::kI8);
}

TEST(CliPrompt, BadArgumentsNameTheFlag) {
  const Int8Files files;
  for (const auto& [flags, named] :
       std::vector<std::pair<std::string, std::string>>{{"--out-dtype f64", "--out-dtype"},
                                                        {"--actual-seq-lengths 9,10", "--actual-seq-lengths"},
                                                        {"--actual-seq-lengths-kv 1,x", "--actual-seq-lengths-kv"},
                                                        {"--sparse-mode 5 --prefix 3,3", "--sparse-mode"},
                                                        {"--softcap 3", "--softcap"}}) {
    const CliResult result = RunCli(files.Flags() + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_THAT(result.err, HasSubstr(named)) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags;
  }
}

TEST(CliPrompt, BenchChecksAndMeasuresEveryType) {
  for (const char* dtype : {"int8", "bf16"}) {
    const CliResult result =
        RunShortBench(std::string("prompt --shape 2,4,2,50,70,24 --causal --layout BSND --threads 1 "
                                  "--json --dtype ") +
                      dtype);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json bench = json::parse(result.out);
    EXPECT_EQ(bench["op"], "prompt");
    EXPECT_GT(bench["fraction"].get<double>(), 0);
  }
}

TEST(CliPrompt, PlanSaysWhatRuns) {
  const CliResult result = RunCli("plan prompt --shape 1,4,4,300,300,64 --dtype int8 --threads 3 --isa portable");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("prompt, i8"));
  EXPECT_THAT(result.out, HasSubstr("i8_4x8_portable"));
}

}  // namespace
}  // namespace fa::test
