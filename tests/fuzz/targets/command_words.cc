#include "fuzz/targets/command_words.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "command_line.h"

namespace fa::test {
namespace {

constexpr int kMostChanges = 12;

// Valid lines, one per command. They have batch 1, 2 heads, 4 queries, 6 keys, head size 8 and 3 indices per query.
constexpr const char* kLines[] = {
    "run forward --query q --key k --value k --layout BNSD --causal --out o --softmax-max o1 --softmax-sum o2 --lse o3",
    "run forward --query q --key k --value k --layout BNSD --atten-mask mask --seed 1 --keep-prob 0.9 --out o",
    "run backward --query q --key k --value k --dout q --out q --softmax-max m --softmax-sum m --layout BNSD --dq o "
    "--dk o1 --dv o2",
    "run merge --layout BNSD --prev-out q --prev-max m --prev-sum m --cur-out q --cur-max m --cur-sum m --out o "
    "--softmax-max o1 --softmax-sum o2",
    "run decode --query dq --key k --value k --layout BNSD --actual-seq-lengths-kv 5 --out o --lse o1",
    "run infer --query dq --key k --value k --layout BNSD_NBSD --actual-seq-lengths-kv 5 --out o --lse o1",
    "run prompt --query q --key k --value k --layout BNSD --actual-seq-lengths 3 --actual-seq-lengths-kv 5 --out o",
    "run sparse-forward --query tq --key tk --sparse-indices i --layout BSND --out o --p-head-mean o1",
    "run sparse-backward --query tq --key tk --sparse-indices i --dout tq --out tq --softmax-max tm --softmax-sum tm "
    "--layout BSND --dq o --dk o1",
    "run indexer --query tq --key tk --weights w --layout BSND --sparse-count 3 --sparse-indices o --sparse-values o1",
    "run indexer-backward --query tq --key tk --weights w --sparse-indices i --dvalues dy --layout BSND --dq o --dk o1 "
    "--dw o2",
    "run indexer-kl-loss --query tq --key tk --query-index tq --key-index tk --weights w --sparse-indices i "
    "--softmax-max tm --softmax-sum tm --layout BSND --dq-index o --dk-index o1 --dw o2 --loss o3",
    "run dense-indexer-lse --query-index tq --key-index tk --weights w --layout BSND --softmax-max-index o "
    "--softmax-sum-index o1",
    "run dense-indexer-kl-loss --query tq --key tk --query-index tq --key-index tk --weights w --softmax-max tm "
    "--softmax-sum tm --softmax-max-index mi --softmax-sum-index mi --layout BSND --dq-index o --dk-index o1 --dw o2 "
    "--loss o3",
    "plan forward --shape 1,2,1,300,400,64 --causal --threads 4 --svg o",
    "plan backward --shape 1,2,2,300,400,64 --causal --cores 4 --json",
    "plan decode --shape 2,4,1,1,900,64 --block-size 16",
    "plan infer --shape 2,4,1,20,900,64 --block-size 16",
    "plan prompt --shape 1,2,2,30,40,64 --dtype int8",
    "plan sparse-forward --shape 1,8,40,90,64,16,32 --svg o",
    "plan sparse-backward --shape 1,8,40,90,64,16,32 --layout TND",
    "plan indexer --shape 1,8,40,90,64,32 --isa avx512_bf16 --cores 8",
    "plan indexer-backward --shape 1,8,40,90,64,32 --json",
    "plan indexer-kl-loss --shape 1,8,40,90,64,16,32 --indexer 4,32",
    "plan dense-indexer-lse --shape 1,8,40,90,64",
    "plan dense-indexer-kl-loss --shape 1,8,40,90,64,16 --indexer 4,32",
    "plan index-score --shape 1,8,40,290,64 --sparse-mode 0",
    "plan indexer-loss-value --shape 40,90 --json",
    "run index-score --query tq --key tk --actual-seq-qlen 6 --actual-seq-kvlen 40 --init-blocks 1 --start-loc 0 "
    "--score o",
    "run indexer-loss-value --target w --probabilities w --eps 0.1 --weight normalised --loss o",
    "bench forward --shape 1,1,1,8,8,8 --json",
    "bench backward --shape 1,1,1,8,8,8",
    "bench decode --shape 1,1,1,1,8,8",
    "bench prompt --shape 1,1,1,8,8,8",
    "bench sparse-forward --shape 1,2,4,6,8,8,3",
    "bench sparse-backward --shape 1,2,4,6,8,8,3",
    "bench indexer --shape 1,2,4,6,8,3",
    "bench indexer-backward --shape 1,2,4,6,8,3",
    "bench index-score --shape 1,2,4,6,8",
    "bench indexer-kl-loss --shape 1,2,4,6,8,8,3",
    "bench dense-indexer-kl-loss --shape 1,2,4,6,8,8",
    "run merge-lse --lse lse lse --local-out rows rows --out o --lse-out o1",
    "run scatter --form BnNBsD --key heads --value heads --slot-mapping slots --key-cache k --value-cache k "
    "--key-cache-out o --value-cache-out o1",
    "run gather --form BnNBsD --key-cache k --value-cache k --block-table pages --seq-lens lens --key o --value o1",
    "plan merge-lse --shape 3,4,8 --threads 4",
    "plan scatter --shape 4,2,64,3,16 --form NZ --json",
    "plan gather --shape 4,2,64,3,16",
    "info --json",
    "--version",
};

constexpr const char* kValues[] = {"BNSD",
                                   "BSND",
                                   "BSH",
                                   "SBH",
                                   "TND",
                                   "BNSD_BSND",
                                   "f32",
                                   "f16",
                                   "bf16",
                                   "int8",
                                   "portable",
                                   "avx2",
                                   "neon_bf16",
                                   "avx512_amx",
                                   "mean",
                                   "l1",
                                   "nan",
                                   "-inf",
                                   "1e400",
                                   "0x10",
                                   "1e-30",
                                   "0.5",
                                   "2,5",
                                   "3,4",
                                   "5,3",
                                   "",
                                   ",",
                                   "--",
                                   "-",
                                   "=",
                                   "-h",
                                   "--help",
                                   "deterministic",
                                   "run",
                                   "18446744073709551616",
                                   "1,2,1,3",
                                   "0,0,0",
                                   "[1,2]",
                                   "{}",
                                   "@q"};

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

/// Returns the names of all options of all commands.
const std::vector<std::string>& OptionNames() {
  static const std::vector<std::string> names = [] {
    CLI::App app;
    tool::AddCommands(app);
    std::vector<std::string> all;
    for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
      for (const CLI::App* command : group->get_subcommands([](const CLI::App*) { return true; })) {
        for (const CLI::Option* option : command->get_options()) all.push_back(option->get_name());
      }
    }
    return all;
  }();
  return names;
}

/// Returns a number that is small, negative, or too large for any memory. A number between these would make a command
/// compute for a long time.
std::string NumberText(InputBytes& input) {
  switch (input.Below(4)) {
    case 0: return std::to_string(int64_t{1} << (40 + input.Below(23)));
    case 1: return std::to_string(-(int64_t{1} << input.Below(63)));
    default: return std::to_string(input.Take<int8_t>());
  }
}

std::string Bytes(InputBytes& input) {
  std::string text;
  for (size_t size = input.Below(12); size > 0; --size) {
    const char letter = input.Take<char>();
    text += letter == '/' || letter == '\0' ? '|' : letter;
  }
  return text;
}

std::string Word(InputBytes& input) {
  switch (input.Below(6)) {
    case 0: return OptionNames()[input.Take<uint16_t>() % OptionNames().size()];
    case 1: return CommandFiles()[input.Below(CommandFiles().size())].name;
    case 2: return NumberText(input);
    case 3: {
      std::string list = NumberText(input);
      for (size_t more = input.Below(9); more > 0; --more) list += "," + NumberText(input);
      return list;
    }
    case 4: return Bytes(input);
    default: return kValues[input.Below(std::size(kValues))];
  }
}

void Change(std::vector<std::string>& words, InputBytes& input) {
  const size_t at = input.Below(words.size() + 1);
  const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
  if (at == words.size()) {
    words.push_back(Word(input));
    return;
  }
  switch (input.Below(6)) {
    case 0: words.insert(place, Word(input)); break;
    case 1: words.erase(place); break;
    case 2: *place += Bytes(input); break;
    case 3: *place += "=" + Word(input); break;
    case 4: std::swap(*place, words[input.Below(words.size())]); break;
    default: *place = Word(input);
  }
}

}  // namespace

const std::vector<CommandFile>& CommandFiles() {
  static const std::vector<CommandFile> files = {
      {"q", 'f', {1, 2, 4, 8}},  {"k", 'f', {1, 2, 6, 8}},  {"m", 'f', {1, 2, 4}},     {"mask", 'b', {4, 6}},
      {"dq", 'f', {1, 2, 1, 8}}, {"k8", '8', {1, 2, 6, 8}}, {"s", 'f', {2}},           {"pages", 'i', {1, 2}},
      {"tq", 'f', {1, 4, 2, 8}}, {"tk", 'f', {1, 6, 1, 8}}, {"w", 'f', {1, 4, 2}},     {"i", 'i', {1, 4, 1, 3}},
      {"tm", 'f', {1, 1, 4, 2}}, {"mi", 'f', {1, 1, 4}},    {"dy", 'f', {1, 4, 1, 3}}, {"zero", 'f', {0}},
      {"lse", 'f', {4}},         {"rows", 'f', {4, 8}},     {"heads", 'f', {4, 2, 8}}, {"slots", 'i', {4}},
      {"lens", 'i', {1}},        {"text", 'x', {}}};
  return files;
}

std::vector<std::string> CommandWords(InputBytes& input) {
  std::vector<std::string> words = WordsOf(kLines[input.Below(std::size(kLines))]);
  for (int change = 0; change < kMostChanges && !input.empty(); ++change) Change(words, input);
  for (const std::string& word : words) {
    if (word == "bench") return words.push_back("--seconds=0"), words;
  }
  return words;
}

bool AsksForGigabytes(const std::vector<std::string>& words) {
  constexpr int64_t kFew = 100000, kBeyondMemory = int64_t{1} << 40;
  for (const std::string& word : words) {
    const size_t digits = word.find_first_of("123456789");
    if (digits == std::string::npos) continue;
    const long long number = std::strtoll(word.c_str() + digits, nullptr, 10);
    if (number > kFew && number < kBeyondMemory) return true;
  }
  return false;
}

}  // namespace fa::test
