#ifndef FA_OPS_BACKWARD_TILE_H_
#define FA_OPS_BACKWARD_TILE_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/dense/gradient_tiles.h"
#include "ops/tile/fetch_runs.h"
#include "ops/tile/grad_strip.h"
#include "ops/tile/score_tile.h"
#include "ops/tile/tile_fetch.h"
#include "tiling/backward/backward_plan.h"

namespace fa::ops {

/// The sums dK and dV of some keys, to which several graphs add one after the other. For kv head h, dK
/// begins at dk + h * dk_head, and dV begins at dv + h * dv_head. The first row belongs to key `first_key`.
struct KeySums {
  /// Whether the graph's tiles start the sums at 0, and whether they round them at the end.
  bool begin = true, end = true;
  float *dk = nullptr, *dv = nullptr;
  int64_t dk_head = 0, dv_head = 0;
  float *k = nullptr, *v = nullptr;  ///< memory for K and V of the keys, if tiles copy K and V
  int64_t k_head = 0, v_head = 0;
  float* bias = nullptr;  ///< gradient of a bias with one row for all queries; only with one query head per kv head
  int64_t bias_head = 0;
  int64_t first_key = 0;
  int64_t first_row = 0;  ///< row of `first_key` in the tensors dK and dV, which receive the rounded sums
};

/// Runs any task of a BackwardPlan. A run makes one object, which all workers share.
class BackwardTile {
 public:
  /// All arguments must outlive the object.
  /// @param sums  one entry per BackwardItem::key_sums, or null if the sums are in the item's slot
  BackwardTile(const tiling::AttentionProblem& problem, const tiling::BackwardPlan& plan,
               const core::kernels::KernelTable& table, const GradRows& rows, const BackwardBuffers& buffers,
               std::byte* workspace, const KeySums* sums = nullptr);

  /// Runs one task with the worker's own scratch.
  void operator()(int32_t task, int worker);

 private:
  struct Tile;

  [[nodiscard]] int64_t SlotRow(const tiling::BackwardItem& item) const;
  [[nodiscard]] GradInputs Inputs() const;
  void OpenRows(Tile& tile) const;
  void OpenColumn(const Tile& tile) const;
  void Accumulate(Tile& tile) const;
  void BindKeys(Tile& tile) const;
  void FetchNext(Tile& tile, TileFetch& rows) const;
  [[nodiscard]] FetchRuns PanelsOfNext(Tile& tile) const;
  [[nodiscard]] bool TakesLoop(Tile& tile) const;
  void LoopGradients(Tile& tile) const;
  void StripGradients(Tile& tile, ColumnStrip& strip) const;
  void ClearKeys(const Tile& tile, tiling::Interval keys) const;
  [[nodiscard]] KeyColumns SumsOfKeys(int64_t columns) const { return buffers_.SumsOfKeys(columns, sums_ == nullptr); }
  [[nodiscard]] bool KeysFinite(Tile& tile) const;
  [[nodiscard]] bool QueryPanelsFinite(Tile& tile) const;
  [[nodiscard]] bool has_dpse() const { return rows_.dpse.data != nullptr; }
  /// Returns whether dS is also read as f32, and not only by the products.
  [[nodiscard]] bool reads_ds() const { return has_dpse() || rows_.dslopes.data != nullptr || rows_.scores.caps(); }
  void OptionalGradients(const Tile& tile, const ColumnStrip& strip) const;
  void BiasGradient(const Tile& tile, const ColumnStrip& strip) const;
  [[nodiscard]] float* KeyBias(const Tile& tile, int64_t key) const;
  void ColumnGradients(const Tile& tile) const;
  void CloseRows(const Tile& tile) const;
  void CloseColumn(const Tile& tile) const;

  const tiling::AttentionProblem& problem_;
  const tiling::BackwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const GradRows& rows_;
  const BackwardBuffers& buffers_;
  std::byte* workspace_;
  const KeySums* sums_;
  ScoreTile score_tile_;
  GradientTiles gradient_tiles_;
};

}  // namespace fa::ops

#endif  // FA_OPS_BACKWARD_TILE_H_
