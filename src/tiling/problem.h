#ifndef FA_TILING_PROBLEM_H_
#define FA_TILING_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/context.h"
#include "fa/tensor.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// The keys that some rows of a sequence keep: the smallest interval that holds the keys of all these rows, and the
/// keys that every row keeps.
struct KeptKeys {
  Interval hull, full;
  friend bool operator==(const KeptKeys&, const KeptKeys&) = default;
};

/// One batch element, or one packed sequence.
struct Sequence {
  int64_t sq = 0, sk = 0;
  /// The sequence's first row in q (q_offset) and in k (k_offset). It is 0 unless sequences are packed, or the rows in
  /// use lie at the end.
  int64_t q_offset = 0, k_offset = 0;
  RowRule rule;
  /// If this object has only some rows of a sequence: the KeptKeys of all rule.sq rows.
  std::optional<KeptKeys> kept_by_all = {};
};

/// A validated attention call as the planner sees it: sizes and features, but no pointers.
struct AttentionProblem {
  int64_t heads = 0, heads_kv = 0;
  int64_t d = 0, d_rope = 0, dv = 0;
  DType dtype = DType::kF32;
  bool dense_mask = false;    ///< whether a mask tensor may drop any pair, so that the plan counts no tile as full
  bool score_passes = false;  ///< whether pse, slopes, a cap or dropout touch every score
  /// Backward: whether (sequence, kv head) pairs are computed one after another, because they add to the gradient of
  /// one shared bias.
  bool one_pair_at_a_time = false;
  bool k_in_place = true;  ///< whether the kernels read rows of K in place; otherwise K is packed
  bool v_in_place = true;
  /// Whether K and V of heads with enough strips are packed as tiles, for the tile unit's loop (TileLoops::attend).
  bool packs_tiles = false;
  bool joins_pieces = false;  ///< whether rows of K and V lie in pieces (NZ pages), which tiles first join
  /// Whether all scores of a row are kept until the row's maximum is known, because probabilities are quantised. The
  /// row's keys are then never cut, and keys are always packed.
  bool whole_rows = false;
  /// If above 0, a tile has tile_eighths / 8 of the most rows that the planner allows. Such a plan is never run. It
  /// only tells how much memory a call needs at most: its buffers are large enough for any shorter sequences too. If 0,
  /// the planner chooses the rows of a tile.
  int64_t tile_eighths = 0;
  std::vector<Sequence> sequences;

  [[nodiscard]] int64_t group() const { return heads / heads_kv; }
};

/// The machine as the planner sees it. Tests also plan for machines that do not exist.
struct Machine {
  Isa isa = Isa::kPortable;
  int workers = 1;
  int nodes = 1;  ///< number of NUMA nodes over which the workers are spread
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  int strip_rows = 32;                      ///< query rows of a strip, which lie along the vectors of the kernel in use
  int64_t memory_bytes = int64_t{1} << 47;  ///< memory that plan and workspace may take
  std::string isa_note = {};                ///< Context::isa_note, for the plan in words
};

/// Returns whether kernels prefetch rows of keys into L1 shortly before they read the rows. On a Zen 5 (48 KiB of L1) a
/// decode is then 15 to 58 % faster, but no faster if keys lie in pages. A sparse forward is 3 % faster. Intel's CPUs
/// with 48 KiB were not timed.
[[nodiscard]] constexpr bool BringsRows(const Machine& machine) { return machine.l1_bytes >= 48 << 10; }

}  // namespace fa::tiling

#endif  // FA_TILING_PROBLEM_H_
