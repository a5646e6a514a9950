#ifndef FA_TOOLS_FA_CASES_SPARSE_CASE_H_
#define FA_TOOLS_FA_CASES_SPARSE_CASE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/msa_index_score.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// The flags by which `fa plan` and `fa bench` describe a call of a sparse operator.
struct SparseCaseFlags {
  std::string shape, indexer = "64,128";
  std::string dtype = "bf16", layout = "BSND";
  int64_t sparse_mode = 3;
  bool separate_value = false;
  int64_t block_size = 0;  ///< if > 0, keys and values lie in pages of this many rows
  std::string rows;        ///< the type of quantised keys, "int8" or "e4m3"; "": keys are not quantised
  int64_t tile = 128;      ///< numbers per scale of quantised keys
};

/// The kind of a command. The kind decides which flags the command has, and which sizes --shape has.
enum class SparseCaseKind : uint8_t {
  kAttention,     ///< --shape has B,N,S1,S2,D,Drope,K
  kIndexer,       ///< --shape has B,Nidx,S1,S2,D,K
  kDenseIndexer,  ///< like kIndexer, but without K, because all keys take part
  kIndexScore,    ///< like kDenseIndexer, but there is no --layout: rows are packed
  kLoss,          ///< like kAttention; the flag --indexer gives the indexer's sizes
  kDenseLoss,     ///< like kLoss, but without K, because all keys take part
};
/// Adds the flags. The default sizes come from DeepSeek-V3.2, with `rows` query tokens.
void AddSparseCaseFlags(CLI::App& command, SparseCaseKind kind, int64_t rows, SparseCaseFlags& flags);
/// Adds --block-size, for commands whose operators take pages.
void AddPagesFlag(CLI::App& command, SparseCaseFlags& flags);

/// Adds --rows, and for attention --tile, for commands whose operators take quantised keys.
void AddRowsFlags(CLI::App& command, SparseCaseKind kind, SparseCaseFlags& flags);

/// A call described by its sizes alone. In TND there are `batch` sequences, each of s1 queries and s2 keys. The
/// arguments and options that its members return point into this object, which therefore cannot be copied.
class SparseCase {
 public:
  /// Makes a case whose tensors are given but have no contents, which is enough to plan. Throws UsageError.
  SparseCase(SparseCaseKind kind, const SparseCaseFlags& flags);
  SparseCase(const SparseCase&) = delete;
  SparseCase& operator=(const SparseCase&) = delete;

  int64_t batch = 0, heads = 0, s1 = 0, s2 = 0, d = 0, d_rope = 0, k = 0;
  int64_t index_heads = 0, index_d = 0;
  int64_t block_size;
  DType dtype;
  Layout layout;
  SparseMask mask;
  bool separate_value;
  std::optional<DType> rows;  ///< the type of quantised keys, and of the queries of an indexer
  int64_t tile = 0;
  std::vector<int64_t> shape;  ///< the sizes that --shape gives

  [[nodiscard]] SparseAttentionArgs ForwardArgs() const;
  [[nodiscard]] SparseAttentionGradArgs BackwardArgs() const;
  [[nodiscard]] SparseAttentionOptions AttentionOptions() const {
    return {.layout = layout, .mask = mask, .row_format = RowFormat()};
  }
  [[nodiscard]] KeyRowFormat RowFormat() const {
    return rows ? KeyRowFormat{.columns = d, .rope = d_rope, .tile = tile} : KeyRowFormat{};
  }
  [[nodiscard]] LightningIndexerArgs IndexerArgs() const;
  [[nodiscard]] LightningIndexerGradArgs IndexerGradArgs() const;
  [[nodiscard]] LightningIndexerOptions IndexerOptions() const { return {.layout = layout, .mask = mask}; }
  [[nodiscard]] LightningIndexerGradOptions IndexerGradOptions() const { return {.layout = layout, .mask = mask}; }
  [[nodiscard]] DenseIndexerLseArgs LseArgs() const;
  [[nodiscard]] DenseIndexerLseOptions LseOptions() const { return {.layout = layout, .mask = mask}; }
  [[nodiscard]] MsaIndexScoreArgs ScoreArgs() const;
  [[nodiscard]] SparseIndexerLossArgs LossArgs() const;
  /// Returns the arguments of the dense loss, for a case of kDenseLoss. The arguments share the tensors of `shared`,
  /// which LossArgs() returned. The statistics of the indexer's softmax are added without contents.
  [[nodiscard]] DenseIndexerLossArgs DenseLossArgs(const SparseIndexerLossArgs& shared) const;
  [[nodiscard]] SparseIndexerLossOptions LossOptions() const { return {.layout = layout, .mask = mask}; }
  [[nodiscard]] DenseIndexerLossOptions DenseLossOptions() const { return {.layout = layout, .mask = mask}; }

  [[nodiscard]] bool paged() const { return block_size > 0; }
  [[nodiscard]] int64_t pages_of_one() const { return paged() ? (s2 + block_size - 1) / block_size : 0; }
  /// Returns a view of keys or values of `size` columns as one tensor, even if the call has pages.
  [[nodiscard]] MutableTensorView Keys(int64_t size) const { return PerRow(dtype, s2, 1, size); }
  [[nodiscard]] MutableTensorView Queries(int64_t size) const { return PerRow(dtype, s1, heads, size); }
  /// QueryScales returns the scales [B, S1, Nidx] of an indexer's quantised queries. KeyScales returns the scales
  /// [B, S2] of an indexer's quantised keys, or [blocks, block size] if keys lie in pages. Scales are f32.
  [[nodiscard]] MutableTensorView QueryScales() const;
  [[nodiscard]] MutableTensorView KeyScales() const;
  /// Returns the number of keys that query token t of a sequence may select.
  [[nodiscard]] int64_t Limit(int64_t t) const;
  /// Returns the mask as text, such as "sparse-mode 3".
  [[nodiscard]] std::string MaskText() const;

 private:
  [[nodiscard]] MutableTensorView PerRow(DType type, int64_t rows, int64_t row_heads, int64_t size) const;
  [[nodiscard]] MutableTensorView KeysOfCall(int64_t size, DType type) const;
  [[nodiscard]] TensorView BlockTable() const;
  [[nodiscard]] MutableTensorView Weights() const;
  [[nodiscard]] MutableTensorView Statistics() const;
  [[nodiscard]] MutableTensorView RowStatistics() const;

  std::vector<int64_t> cu_q_, cu_kv_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_SPARSE_CASE_H_
