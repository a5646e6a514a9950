#ifndef FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_
#define FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/sparse_flash_attention.h"
#include "flags/failure.h"

namespace fa::tool {

/// The flags of the sparse family that are not tensors; each command has some of them.
struct SparseFlags {
  std::string layout, dtype;
  int64_t sparse_mode = 3;
  std::string actual_seq_qlen, actual_seq_kvlen;
  bool skip_bad_indices = false;
  std::optional<float> scale;
  int64_t sparse_block_size = 1;
  int64_t sparse_count = 1;
  std::string reduction = "sum", target = "head-mean";
};

/// Adds --layout, --dtype, --sparse-mode, --actual-seq-qlen, --actual-seq-kvlen.
void AddSequenceFlags(CLI::App& command, SparseFlags& flags);
/// Adds --skip-bad-indices.
void AddIndexFlags(CLI::App& command, SparseFlags& flags);
void AddScaleFlag(CLI::App& command, SparseFlags& flags);
void AddBlockSizeFlag(CLI::App& command, SparseFlags& flags);
void AddCountFlag(CLI::App& command, SparseFlags& flags);
/// Adds --reduction and --target.
void AddLossFlags(CLI::App& command, SparseFlags& flags);

/// Sets the options that the flags give. Throws UsageError.
void ReadOptions(const SparseFlags& flags, SparseAttentionOptions& options);
void ReadOptions(const SparseFlags& flags, LightningIndexerOptions& options);
void ReadOptions(const SparseFlags& flags, LightningIndexerGradOptions& options);
void ReadOptions(const SparseFlags& flags, DenseIndexerLseOptions& options);
void ReadOptions(const SparseFlags& flags, SparseIndexerLossOptions& options);
void ReadOptions(const SparseFlags& flags, DenseIndexerLossOptions& options);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_SPARSE_FLAGS_H_
