#ifndef FA_OPS_INDEXER_TILE_H_
#define FA_OPS_INDEXER_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/indexer_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/top_k.h"
#include "ops/plan/carver.h"
#include "ops/tile/head_strips.h"
#include "ops/token/gathered_keys.h"
#include "tiling/indexer_plan.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The kernels of a planned indexer's forward, and where its memory lies.
struct IndexerProgram {
  IndexerProgram(const BoundIndexer& bound, const core::kernels::KernelTable& table, const tiling::Machine& machine);

  [[nodiscard]] int64_t KeyWidth() const { return table.widest().width; }

  const core::kernels::KernelTable& table;
  const core::kernels::IndexerKernels& kernels;
  HeadStrips strips;
  bool widens;  ///< queries do not lie as the kernels take them
  GatherShape gather;
  tiling::IndexerPlan plan;
  int64_t row_floats;    ///< from token to token of rows of scores
  size_t scratch_bytes;  ///< of one worker

  // Offsets in the workspace.
  size_t run_state = 0, scratch = 0, scores = 0;
};

/// Runs one task of an indexer's forward.
class IndexerTile {
 public:
  /// All arguments are kept by the caller.
  IndexerTile(const BoundIndexer& bound, const IndexerProgram& program, const SelectionRows& rows, std::byte* workspace)
      : bound_(bound),
        program_(program),
        rows_(rows),
        workspace_(workspace),
        keys_(*program.table.rows, program.gather, {.k = rows.in.k}) {}

  /// Bytes of one worker's scratch.
  [[nodiscard]] static size_t ScratchBytes(const BoundIndexer& bound, const IndexerProgram& program);

  void operator()(int32_t task, int worker) const;
  /// Writes the rows of tokens that no sequence uses: no index, no value. Call it before the tasks run.
  void WriteUnusedRows() const;

 private:
  struct Scratch {
    Scratch(Carver& carver, const BoundIndexer& bound, const IndexerProgram& program);
    float* scores;   ///< rows of the tokens of an item; those of cut keys lie in the workspace
    float* panel;    ///< a strip of keys, or a token's heads
    float* queries;  ///< of the tokens, widened [token][head][d]
    float* weights;  ///< of the tokens [token][head]
    float* tile;     ///< scores before their sum
    float* values;   ///< of one token's entries
    int32_t* block;  ///< numbers of the keys of a block
    GatherPanels gathered;
    TopK top_k;
  };

  [[nodiscard]] SparseToken Token(const tiling::IndexerItem& item, int64_t i) const {
    return {item.sequence, item.rows.begin + i};
  }
  void ReadTokens(const tiling::IndexerItem& item, const Scratch& scratch) const;
  void ScoreKeysAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const;
  void ScoreHeadsAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const;
  [[nodiscard]] core::kernels::RowBlock KeyRows(const KeyPlace& place, int64_t key, int64_t count,
                                                const Scratch& scratch) const;
  void SelectKeys(const SparseToken& token, const float* scores, const Scratch& scratch) const;
  void WriteEntries(int64_t batch, int64_t row, int64_t used, float* values) const;
  [[nodiscard]] Scratch ScratchOf(int worker) const;

  const BoundIndexer& bound_;
  const IndexerProgram& program_;
  const SelectionRows& rows_;
  std::byte* workspace_;
  GatheredKeys keys_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INDEXER_TILE_H_
