// Runs the fuzzers' targets without libFuzzer, on every input of the corpus and then on changed inputs. FA_FUZZ_SECONDS
// is the time for changed inputs (default 1, under a sanitizer 15). Prints the seed of the changes. scripts/fuzz.sh
// runs the targets with libFuzzer.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/crash_note.h"
#include "fuzz/targets/targets.h"
#include "support/cases/random_token_case.h"
#include "support/execution/contexts.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Input = std::vector<uint8_t>;

std::vector<Input> Corpus(const std::string& name) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(FA_FUZZ_CORPUS "/" + name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

size_t Place(const Input& input, RandomChoices& random) {
  return static_cast<size_t>(random.Pick(0, static_cast<int64_t>(input.size())));
}

/// Overwrites, inserts or removes bytes, or appends the end of another input.
void Change(Input& input, const std::vector<Input>& corpus, RandomChoices& random) {
  const size_t at = Place(input, random);
  switch (random.Pick(0, 4)) {
    case 0: input.insert(input.begin() + static_cast<int64_t>(at), static_cast<uint8_t>(random.Pick(0, 255))); break;
    case 1:
      if (at < input.size()) input.erase(input.begin() + static_cast<int64_t>(at));
      break;
    case 2: {
      const Input& other = corpus[static_cast<size_t>(random.Pick(0, std::ssize(corpus) - 1))];
      input.resize(at);
      input.insert(input.end(), other.begin() + static_cast<int64_t>(Place(other, random)), other.end());
      break;
    }
    default:
      if (at < input.size()) input[at] = static_cast<uint8_t>(random.Pick(0, 255));
  }
}

class FuzzCorpus : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  void Run(const Input& input) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string note = std::string(GetParam().name) + " input ";
    for (const uint8_t byte : input) (note += kDigits[byte >> 4]) += kDigits[byte & 15];
    NoteForACrash(note);
    const Clock::time_point begin = Clock::now();
    GetParam().run(input);
    if (Clock::now() - begin > std::chrono::seconds(1)) std::printf("more than a second: %s\n", note.c_str());
    ++runs_;
  }
  int64_t runs_ = 0;
};

TEST_P(FuzzCorpus, AndWhatIsLikeItBreaksNothing) {
  const std::vector<Input> corpus = Corpus(GetParam().name);
  ASSERT_GE(corpus.size(), 10u);
  for (const Input& input : corpus) Run(input);
  const int seed = FromEnvironment("FA_FUZZ_SEED", 1);
  std::printf("FA_FUZZ_SEED=%d\n", seed);
  RandomChoices random(static_cast<uint64_t>(seed));
  const auto end = Clock::now() + std::chrono::seconds(FromEnvironment("FA_FUZZ_SECONDS", Sanitized() ? 15 : 1));
  do {
    Input input = corpus[static_cast<size_t>(random.Pick(0, std::ssize(corpus) - 1))];
    for (int64_t changes = random.Pick(1, 6); changes > 0; --changes) Change(input, corpus, random);
    if (input.size() > 600) input.resize(600);
    Run(input);
  } while (Clock::now() < end);
  RecordProperty("runs", std::to_string(runs_));
  std::printf("%lld runs\n", static_cast<long long>(runs_));
  EXPECT_GT(runs_, std::ssize(corpus));
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, ::testing::ValuesIn(kFuzzTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fa::test
