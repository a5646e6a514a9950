#ifndef FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_
#define FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fa/indexer_loss.h"
#include "fa/sparse_mask.h"
#include "fa/tensor.h"
#include "flags/failure.h"

namespace fa::tool {

/// The flags of the shared-kv commands, without the flags that name tensors.
struct SharedKvFlags {
  std::string cu_q, cu_ori, cu_cmp, used_q, used_ori, used_cmp, cmp_residual;
  int64_t ori_mask = 0, cmp_mask = 3, window_left = -1, window_right = -1;
  bool ori_indices_are_slots = false;
};

/// The flags of all sparse commands, without the flags that name tensors. Each command has some of these flags.
struct SparseFlags {
  std::string layout = "BSND", dtype;
  int64_t sparse_mode = 3;
  std::string actual_seq_qlen, actual_seq_kvlen;
  bool skip_bad_indices = false;
  std::optional<float> scale;
  int64_t sparse_block_size = 1;
  int64_t sparse_count = 1;
  std::string reduction = "sum", target = "head-mean";
  SharedKvFlags shared;
  std::optional<int64_t> tile;  ///< value of --tile; if absent, keys are not quantised
  int64_t rope_columns = 0;
  int64_t cmp_ratio = 1;
  std::string residual_kv, used_q, used_kv;
};

/// Adds --layout, --dtype, --sparse-mode, --actual-seq-qlen, --actual-seq-kvlen.
void AddSequenceFlags(CLI::App& command, SparseFlags& flags);
/// Adds --tile and --rope-columns for rows of original and compressed keys.
void AddSharedKvRowFlags(CLI::App& command, SparseFlags& flags);
/// Adds --layout, --dtype and the flags of SharedKvFlags.
void AddSharedKvFlags(CLI::App& command, SparseFlags& flags);
/// Adds --skip-bad-indices.
void AddIndexFlags(CLI::App& command, SparseFlags& flags);
void AddScaleFlag(CLI::App& command, SparseFlags& flags);
void AddBlockSizeFlag(CLI::App& command, SparseFlags& flags);
void AddCountFlag(CLI::App& command, SparseFlags& flags);
/// Adds --tile and --rope-columns.
void AddRowFormatFlags(CLI::App& command, SparseFlags& flags);
/// Adds --cmp-ratio, --residual-kv, --used-q and --used-kv.
void AddCompressionFlags(CLI::App& command, SparseFlags& flags);
/// Adds --reduction and --target.
void AddLossFlags(CLI::App& command, SparseFlags& flags);

// These functions parse the values of flags, and throw UsageError.
[[nodiscard]] int64_t CountOf(const SparseFlags& flags);
/// Returns how many numbers of a quantised key share one scale (--tile), or 0 if keys are not quantised.
[[nodiscard]] int64_t KeyTileOf(const SparseFlags& flags);
[[nodiscard]] Layout SparseLayout(const SparseFlags& flags);
[[nodiscard]] SparseMask MaskOf(const SparseFlags& flags);
/// @param band  whether the mask may be 4, a window
[[nodiscard]] SparseMask RangeMaskOf(const char* flag, int64_t mask, bool band);
[[nodiscard]] LossReduction ReductionOf(const SparseFlags& flags);
[[nodiscard]] IndexerTarget TargetOf(const SparseFlags& flags);

/// Sets the options of a sparse operator for which flags are given. Throws UsageError.
template <typename Options>
void ReadOptions(const SparseFlags& flags, Options& options) {
  options.layout = SparseLayout(flags);
  if constexpr (requires { options.mask; }) options.mask = MaskOf(flags);
  if constexpr (requires { options.ori_mask; }) {
    const SharedKvFlags& shared = flags.shared;
    options.row_format = {.rope = flags.rope_columns, .tile = KeyTileOf(flags)};
    options.ori_mask = RangeMaskOf("--ori-mask", shared.ori_mask, /*band=*/true);
    options.cmp_mask = RangeMaskOf("--cmp-mask", shared.cmp_mask, /*band=*/false);
    options.window_left = shared.window_left;
    options.window_right = shared.window_right;
    options.ori_indices_are_slots = shared.ori_indices_are_slots;
  }
  if constexpr (requires { options.check_indices; }) options.check_indices = !flags.skip_bad_indices;
  if constexpr (requires { options.scale; }) options.scale = flags.scale;
  if constexpr (requires { options.block_size; }) options.block_size = flags.sparse_block_size;
  if constexpr (requires { options.reduction; }) options.reduction = ReductionOf(flags);
  if constexpr (requires { options.target; }) options.target = TargetOf(flags);
  if constexpr (requires { options.cmp_ratio; }) options.cmp_ratio = flags.cmp_ratio;
}

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_
