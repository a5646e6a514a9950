#include "files/mask_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fa/block_mask.h"
#include "flags/failure.h"
#include "flags/flag_names.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

constexpr int64_t kModePrefix = 5;
constexpr int64_t kModePrefixCompressed = 6;

/// Returns whether the mode takes a compressed mask of 2048 columns.
bool TakesCompressedMask(int64_t mode) { return mode >= 2 && mode <= 8 && mode != kModePrefix; }

/// Throws UsageError if a flag has no effect or flags contradict each other.
void CheckCombination(const MaskFlags& flags) {
  const int64_t mode = flags.sparse_mode.value_or(0);
  const char* band = flags.pre_tokens ? "--pre-tokens" : flags.next_tokens ? "--next-tokens" : nullptr;
  if (flags.causal && flags.sparse_mode) throw UsageError("--causal: cannot be combined with --sparse-mode");
  if (flags.causal && band != nullptr) throw UsageError(fmt::format("{}: cannot be combined with --causal", band));
  if (mode < 0 || mode > 8) throw UsageError(fmt::format("--sparse-mode: {}, want 0 to 8", mode));
  if (mode == 0 && band != nullptr && flags.atten_mask.empty()) {
    throw UsageError(fmt::format("{}: mode 0 without --atten-mask ignores it; for a window use --sparse-mode 4", band));
  }
  const bool takes_prefix = mode == kModePrefix || mode == kModePrefixCompressed;
  if (flags.block_mask.empty() && !flags.block_shape.empty()) throw UsageError("--block-shape: needs --block-mask");
  if (!flags.prefix.empty() && !takes_prefix) throw UsageError("--prefix: only for --sparse-mode 5 and 6");
  if (flags.prefix.empty() && takes_prefix) {
    throw UsageError(fmt::format("--prefix: missing, --sparse-mode {} needs one number per batch element", mode));
  }
}

std::string Describe(const MaskFlags& flags) {
  std::string text = flags.causal ? "causal" : "";
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (flags.sparse_mode.value_or(0) != 0) add(fmt::format("sparse-mode {}", *flags.sparse_mode));
  if (flags.pre_tokens) add(fmt::format("pre {}", *flags.pre_tokens));
  if (flags.next_tokens) add(fmt::format("next {}", *flags.next_tokens));
  if (!flags.prefix.empty()) add(fmt::format("prefix {}", flags.prefix));
  if (!flags.atten_mask.empty()) add("atten-mask");
  if (!flags.block_mask.empty()) add("block-mask");
  return text.empty() ? "none" : text;
}

}  // namespace

void AddMaskFlags(CLI::App& command, MaskFlags& flags) {
  command.add_flag("--causal", flags.causal, "Bottom-right aligned: the last query sees every key");
  command
      .add_option(
          "--atten-mask", flags.atten_mask,
          "bool or uint8, 1 = drop: [Sq,Sk], [1,1,Sq,Sk], [B,1,Sq,Sk], [B,N,Sq,Sk], TND [maxSq,maxSk]; modes 2, "
          "3, 4, 7, 8: the 2048x2048 triangle, mode 6: 3072x2048")
      ->type_name("NPY");
  command.add_option("--sparse-mode", flags.sparse_mode, "0 to 8; 2 and above need no --atten-mask")->type_name("N");
  command.add_option("--pre-tokens", flags.pre_tokens, "Keys kept before the diagonal, modes 0, 4, 7, 8")
      ->type_name("N");
  command.add_option("--next-tokens", flags.next_tokens, "Keys kept after the diagonal, modes 0, 4, 7, 8")
      ->type_name("N");
  command
      .add_option("--prefix", flags.prefix, "Modes 5 and 6: keys that every query sees, one number per batch element")
      ->type_name("N,N,...");
  command
      .add_option(
          "--block-mask", flags.block_mask,
          "bool, int8 or uint8, 1 = keep: [B|1,N|Nkv|1,ceil(Sq/X),ceil(Sk/Y)], or its last two dimensions; TND: "
          "of the longest sequences")
      ->type_name("NPY");
  command.add_option("--block-shape", flags.block_shape, "Rows and keys of a block of --block-mask; default: 128,128")
      ->type_name("X,Y");
}

MaskInputs LoadMask(const MaskFlags& flags, InputFiles* files) {
  CheckCombination(flags);
  MaskInputs inputs;
  inputs.text = Describe(flags);
  const int64_t mode = flags.sparse_mode.value_or(0);
  const bool given = !flags.atten_mask.empty(), full = flags.causal || !TakesCompressedMask(mode);
  if (given && full && files != nullptr) {
    inputs.view = files->Load("--atten-mask", flags.atten_mask);
  } else if (given) {
    inputs.dense = LoadTensor("--atten-mask", flags.atten_mask, std::nullopt);
  }
  if (flags.causal) {
    inputs.rule = Mask::Causal();
    return inputs;
  }
  if (inputs.dense && !full) {
    ThrowUnlessOk(VerifyCompressedMask(inputs.dense->View(), mode));
    inputs.dense.reset();
  }
  std::vector<int64_t> prefix;
  if (!flags.prefix.empty()) prefix = ParseIntegers("--prefix", flags.prefix);
  Result<Mask> rule =
      Mask::FromSparseMode(mode, flags.pre_tokens.value_or(Mask::kUnlimited),
                           flags.next_tokens.value_or(Mask::kUnlimited), std::move(prefix), given && full);
  ThrowUnlessOk(rule.status());
  inputs.rule = std::move(*rule);
  return inputs;
}

std::optional<PairMask> LoadBlockMask(const MaskFlags& flags, int64_t rows, int64_t keys) {
  if (flags.block_mask.empty()) return std::nullopt;
  static constexpr FlagName kNames[] = {{"blocks", "--block-mask"},
                                        {"rows", "--query"},
                                        {"keys", "--key"},
                                        {"block_rows", "--block-shape"},
                                        {"block_keys", "--block-shape"}};
  const std::vector<int64_t> shape =
      flags.block_shape.empty() ? std::vector<int64_t>{128, 128} : ParseIntegers("--block-shape", flags.block_shape);
  if (shape.size() != 2) throw UsageError(fmt::format("--block-shape: {}, want X,Y", flags.block_shape));
  const Tensor blocks = LoadTensor("--block-mask", flags.block_mask, std::nullopt);
  auto mask =
      PairMaskFromBlocks(blocks.View(), {.rows = rows, .keys = keys, .block_rows = shape[0], .block_keys = shape[1]});
  ThrowUnlessOk(mask.status(), kNames);
  return std::move(*mask);
}

int64_t LongestOf(std::span<const int64_t> prefix_sums) {
  int64_t longest = 0, before = 0;
  for (const int64_t sum : prefix_sums) {
    longest = std::max(longest, sum - before);
    before = sum;
  }
  return longest;
}

}  // namespace fa::tool
