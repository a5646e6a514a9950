#ifndef FA_TOOLS_FA_FILES_MASK_FLAGS_H_
#define FA_TOOLS_FA_FILES_MASK_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fa/mask.h"
#include "fa/pair_mask.h"
#include "files/input_files.h"
#include "files/tensors.h"

namespace fa::tool {

/// Values of --causal, --atten-mask, --sparse-mode, --pre-tokens, --next-tokens, --prefix, --block-mask, --block-shape.
struct MaskFlags {
  bool causal = false;
  std::string atten_mask;
  std::optional<int64_t> sparse_mode, pre_tokens, next_tokens;
  std::string prefix;
  std::string block_mask, block_shape;
};

void AddMaskFlags(CLI::App& command, MaskFlags& flags);

/// The mask that the flags describe.
struct MaskInputs {
  Mask rule;
  /// The full mask, unless the `files` of LoadMask own it. A compressed mask is checked and then dropped, because
  /// `rule` says the same.
  std::optional<Tensor> dense;
  TensorView view;   ///< the full mask, if the `files` of LoadMask own it
  std::string text;  ///< the mask in printed text and in JSON: "none", "causal", "sparse-mode 4, pre 64, next 0"
};

/// Reads the mask that the flags describe. Throws UsageError or Failure.
/// @param files  reads the file of a full mask; if null, the mask is read into `dense`
[[nodiscard]] MaskInputs LoadMask(const MaskFlags& flags, InputFiles* files = nullptr);

/// Reads the block mask, if the flags name one. Throws UsageError or Failure.
/// @param rows, keys  the most query rows and the most keys that a sequence has
[[nodiscard]] std::optional<PairMask> LoadBlockMask(const MaskFlags& flags, int64_t rows, int64_t keys);

/// Returns the length of the longest packed sequence. `prefix_sums` has the end of each sequence.
[[nodiscard]] int64_t LongestOf(std::span<const int64_t> prefix_sums);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_MASK_FLAGS_H_
