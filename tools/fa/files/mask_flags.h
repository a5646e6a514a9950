#ifndef FA_TOOLS_FA_FILES_MASK_FLAGS_H_
#define FA_TOOLS_FA_FILES_MASK_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "fa/mask.h"
#include "files/input_files.h"
#include "files/tensors.h"

namespace fa::tool {

/// Values of --causal, --atten-mask, --sparse-mode, --pre-tokens, --next-tokens, --prefix.
struct MaskFlags {
  bool causal = false;
  std::string atten_mask;
  std::optional<int64_t> sparse_mode, pre_tokens, next_tokens;
  std::string prefix;
};

void AddMaskFlags(CLI::App& command, MaskFlags& flags);

/// What the flags mean.
struct MaskInputs {
  Mask rule;
  std::optional<Tensor> dense;  ///< a full mask; a compressed mask is checked, and then only its rule is kept
  TensorView view;              ///< the full mask where `files` have it
  std::string text;             ///< for people and JSON: "none", "causal", "sparse-mode 4, pre 64, next 0"
};

/// @param files  load the full mask, or open it; null: it becomes `dense`
/// Throws UsageError, Failure.
[[nodiscard]] MaskInputs LoadMask(const MaskFlags& flags, InputFiles* files = nullptr);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_MASK_FLAGS_H_
