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
  size_t run_state = 0;                             ///< state of the executor
  size_t slots = 0;                                 ///< packed K and V
  size_t scratch = 0;                               ///< one piece per worker
  size_t scratch_bytes = 0;                         ///< bytes of one worker
  bool converts_keys = false, stages_bias = false;  ///< whether scratch has room for these two
  size_t arrivals = 0;      ///< one int32_t per merge: number of parts whose state is there; 0 before and after a run
  size_t states = 0;        ///< states of parts of keys
  size_t state_floats = 0;  ///< floats of one part's state
};

/// Floats of one part's state: statistics and output state of each strip of a tile of `rows` rows.
[[nodiscard]] size_t PartStateFloats(int64_t rows, int64_t dv);

/// Whether the keys of a sequence are one block. The output then needs no rescaling, and V of a block stays in L1 from
/// one register block of rows to the next, so a state by rows saves the transposition. Longer sequences lose more on V:
/// rows read four vectors of V per key where lanes read eight numbers. At S = 1024 they lose 2 % with D = 64 and 20 %
/// with D = 128.
[[nodiscard]] bool IsShort(const tiling::AttentionProblem& problem, int64_t block_k, int32_t sequence);

/// The kernels for the first of `rows` rows of a sequence: the kernels of few rows if the whole group has few rows. The
/// choice depends on the sequence alone, since the bits of the two kinds differ.
[[nodiscard]] const core::kernels::StripKernels& ForwardKernels(const core::kernels::KernelTable& table,
                                                                const tiling::AttentionProblem& problem,
                                                                int64_t block_k, int32_t sequence, int64_t rows);

/// The forward's tile program: runs any task of a ForwardPlan. One per Run, shared by all workers.
class ForwardTile {
 public:
  /// The caller keeps all arguments.
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
  /// Whether strips of a short sequence fetch the next tile. With kernels of pairs, only strips with their state by
  /// rows do so: the tile unit's strips have several blocks in flight instead. V of pairs is listed too, because the
  /// next tile makes pairs from it.
  bool fetches_tiles_;
  ForwardBuffers buffers_;
  std::byte* workspace_;
  ForwardStrips strips_;
  KeyPanels panels_;
};

}  // namespace fa::ops

#endif  // FA_OPS_FORWARD_TILE_H_
