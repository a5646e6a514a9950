#ifndef FA_OPS_INDEXER_TILE_H_
#define FA_OPS_INDEXER_TILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/block_maxima.h"
#include "ops/plan/carver.h"
#include "ops/tile/head_strips.h"
#include "ops/token/gathered_keys.h"
#include "tiling/problem.h"
#include "tiling/sparse/indexer_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The last step of an indexer's forward, which uses a query token's row of scores.
class TokenStep {
 public:
  virtual ~TokenStep() = default;
  /// @param scores   scores of the keys below the token's limit, or maxima [head][BlocksPerHead()] of its blocks
  ///                 (IndexerShape::score_block); the step may overwrite them
  /// @param scratch  memory of one worker, 64-byte aligned, with bytes_of_step bytes (IndexerProgram)
  virtual void operator()(const SparseToken& token, float* scores, std::byte* scratch) const = 0;
};

/// The kernels of a planned indexer's forward, and the layout of its memory.
struct IndexerProgram {
  /// @param bytes_of_step  scratch of the step, per worker
  IndexerProgram(const IndexerShape& bound_shape, const core::kernels::KernelTable& table_of_type,
                 const tiling::Machine& machine, size_t bytes_of_step, tiling::WorkspacePlan& workspace);

  [[nodiscard]] int64_t KeyWidth() const { return table.widest().width; }
  /// Returns the names of the kernels for plans in words.
  [[nodiscard]] std::vector<std::string> KernelNames() const;

  const IndexerShape& shape;
  const core::kernels::KernelTable& table;
  const core::kernels::IndexerKernels& kernels;
  HeadStrips strips;
  bool widens;    ///< whether queries are converted to `operand`, because the kernels cannot read their type
  DType operand;  ///< the type of widened queries
  bool loops;     ///< whether the tile unit's loop `head_tiles` scores keys, for many tokens
  GatherShape gather;
  tiling::IndexerPlan plan;
  int64_t row_floats;                ///< number of floats from one token's scores to the next token's
  size_t step_bytes, scratch_bytes;  ///< bytes per worker

  // Offsets in the workspace.
  size_t run_state, scratch, scores;
};

/// Runs one task of an indexer's forward.
class IndexerTile {
 public:
  /// All arguments must outlive the object.
  IndexerTile(const IndexerProgram& program, const IndexerRows& rows, const TokenStep& step, std::byte* workspace)
      : program_(program),
        rows_(rows),
        step_(step),
        workspace_(workspace),
        keys_(*program.table.rows, program.gather, {.k = rows.k}) {}

  /// Returns the number of bytes of scratch per worker.
  [[nodiscard]] static size_t ScratchBytes(const IndexerProgram& program);

  void operator()(int32_t task, int worker) const;
  /// Returns the memory for the steps that one worker runs.
  [[nodiscard]] std::byte* StepScratch(int worker) const { return ScratchOf(worker).step; }

 private:
  struct Scratch {
    Scratch(Carver& carver, const IndexerProgram& program);
    float* scores;  ///< scores of an item's tokens; if keys are cut into parts, the workspace has the scores instead
    float* panel;   ///< a packed strip of keys, or the packed heads of a token
    std::byte* queries;  ///< widened queries [token][head][d]
    float* weights;      ///< weights [token][head], multiplied by the scales of queries if there are scales
    float* scales;       ///< scales of a token's queries, or of a block of keys
    float* tile;         ///< scores of each head, before they are summed over the heads
    float* head_tiles;   ///< the loop's queries, token after token
    char* loop;          ///< TileHeadArgs::kMemoryBytes
    int32_t* block;      ///< the key numbers of a block that is gathered
    GatherPanels gathered;
    std::byte* step;
  };

  [[nodiscard]] SparseToken Token(const tiling::IndexerItem& item, int64_t i) const {
    return {item.sequence, item.rows.begin + i};
  }
  void ReadTokens(const tiling::IndexerItem& item, const Scratch& scratch) const;
  void ReadScaledWeights(const SparseToken& token, const Scratch& scratch, float* weights) const;
  void WidenQueries(const SparseToken& token, const Scratch& scratch, std::byte* to) const;
  /// Returns the heads of token i of an item for the kernels, widened if the kernels cannot read them.
  [[nodiscard]] core::kernels::RowBlock QueriesOf(const tiling::IndexerItem& item, int64_t i,
                                                  const Scratch& scratch) const;
  /// Returns the scales of keys, or null if keys have none.
  [[nodiscard]] const float* KeyScales(const KeyPlace& place, int64_t key, int64_t count, const Scratch& scratch) const;
  /// Returns the maxima of token i of an item, if shape.score_block is not 0.
  [[nodiscard]] BlockMaxima MaximaOf(int64_t i, float* scores) const;
  [[nodiscard]] float* HeadTiles(int64_t i, const Scratch& scratch) const;
  void AddHeads(const tiling::IndexerItem& item, const Scratch& scratch, int64_t key, float* scores) const;
  void ScoreKeysAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const;
  void ScoreHeadsAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const;
  [[nodiscard]] core::kernels::RowBlock KeyRows(const KeyPlace& place, int64_t key, int64_t count,
                                                const Scratch& scratch) const;
  [[nodiscard]] Scratch ScratchOf(int worker) const;

  const IndexerProgram& program_;
  const IndexerRows& rows_;
  const TokenStep& step_;
  std::byte* workspace_;
  GatheredKeys keys_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INDEXER_TILE_H_
