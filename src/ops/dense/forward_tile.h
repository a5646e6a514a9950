#ifndef FA_OPS_FORWARD_TILE_H_
#define FA_OPS_FORWARD_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/forward_strips.h"
#include "ops/tile/key_panels.h"
#include "ops/tile/output_rows.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/forward/forward_plan.h"

namespace fa::ops {

/// Where a forward plan's buffers lie in the workspace.
struct ForwardBuffers {
  size_t run_state = 0;                             ///< of the executor
  size_t slots = 0;                                 ///< packed K and V
  size_t scratch = 0;                               ///< worker after worker
  size_t scratch_bytes = 0;                         ///< of one worker
  bool converts_keys = false, stages_bias = false;  ///< what else a worker's scratch has room for
  size_t arrivals = 0;  ///< one int32_t per merge: the number of parts whose state is there; 0 before and after a run
  size_t states = 0;    ///< of parts of keys
  size_t state_floats = 0;  ///< of one part
};

/// Floats of the state of one part: for each strip of a tile of `rows` rows its statistics and output state.
[[nodiscard]] size_t PartStateFloats(int64_t rows, int64_t dv);

/// Whether the keys of a sequence are one block. The output then needs no rescaling, and V of a block stays in L1 from
/// one register block of rows to the next: a state by rows saves the transposition. Longer sequences lose more on V, of
/// which rows read four vectors per key where lanes read eight numbers (measured at S = 1024: 2 % at D = 64, 20 % at
/// 128).
[[nodiscard]] bool IsShort(const tiling::AttentionProblem& problem, int64_t block_k, int32_t sequence);

/// The kernels for the first of `rows` rows of a sequence: those of few rows if the whole group has few. The choice
/// depends on the sequence alone, since the bits of the two differ.
[[nodiscard]] const core::kernels::StripKernels& ForwardKernels(const core::kernels::KernelTable& table,
                                                                const tiling::AttentionProblem& problem,
                                                                int64_t block_k, int32_t sequence, int64_t rows);

/// The forward's tile program: runs any task of a ForwardPlan. One per Run, shared by all workers.
class ForwardTile {
 public:
  /// All arguments are kept by the caller.
  ForwardTile(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
              const core::kernels::KernelTable& table, const ForwardRows& rows, const ForwardBuffers& buffers,
              std::byte* workspace, const OutputQuantization* quantization);

  /// Runs one task with the worker's own scratch.
  void operator()(int32_t task, int worker);

 private:
  /// @param next  the tile that the worker is likely to run next, or null
  void RunTile(const tiling::ForwardItem& item, const tiling::ForwardItem* next, const TileScratch& scratch) const;
  void VisitKeys(const tiling::ForwardItem& item, const TileScratch& scratch, ForwardStrips::Strips& strips,
                 bool anew) const;
  void VisitShort(const tiling::ForwardItem& item, const tiling::ForwardItem* next, const TileScratch& scratch,
                  ForwardStrips::Strips& strips) const;
  bool MergeParts(const tiling::ForwardItem& item, RunningStrip* strips, int64_t count) const;
  void AddPart(const float* part, RunningStrip& strip) const;

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const ForwardRows& rows_;
  /// Strips of a short sequence fetch the next tile. Of pairs only those with their state by rows: the tile unit's have
  /// several blocks in flight instead. V of pairs is listed too, because the next tile lays it in pairs from there.
  bool fetches_tiles_;
  ForwardBuffers buffers_;
  std::byte* workspace_;
  ForwardStrips strips_;
  KeyPanels panels_;
};

}  // namespace fa::ops

#endif  // FA_OPS_FORWARD_TILE_H_
