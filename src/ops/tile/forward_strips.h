#ifndef FA_OPS_FORWARD_STRIPS_H_
#define FA_OPS_FORWARD_STRIPS_H_

#include <array>
#include <cstdint>
#include <type_traits>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/key_rows.h"
#include "ops/tile/output_rows.h"
#include "ops/tile/score_tile.h"
#include "ops/tile/strip.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// A strip with its state of the online softmax.
struct RunningStrip : Strip {
  float* state = nullptr;
  float* row_max = nullptr;
  float* row_sum = nullptr;
  /// If not null, `largest` holds the row's largest score, and `whole_sum` the sum of the probabilities before
  /// rounding. Then row_max is only some score of the row, to which probabilities are relative, and row_sum adds the
  /// rounded probabilities.
  float *largest = nullptr, *whole_sum = nullptr;
  bool started = false;     ///< whether `state` holds anything
  bool met_masked = false;  ///< whether a masked pair may have been multiplied with its value
  /// Whether the product of every block looks for masked pairs and leaves them out (ForwardStrips::Restart).
  bool skips_masked = false;
  uint32_t good_lanes = 0;  ///< one bit per lane: whether AttendedTiles has a valid result for the lane
};

/// The block of a strip whose probabilities are not yet multiplied. One loop multiplies these probabilities and
/// computes the scores of the next block (`scores_beside`).
class BlockInFlight {
 public:
  /// @param scores  memory for two tiles of scores, `floats` floats each
  BlockInFlight(float* scores, int64_t floats) : scores_{scores, scores + floats} {}
  BlockInFlight(const BlockInFlight&) = delete;  // not copied: `product` points at alpha
  BlockInFlight& operator=(const BlockInFlight&) = delete;

 private:
  friend class ForwardStrips;
  std::array<float*, 2> scores_;
  std::array<LaneArray<float>, 2> alpha_;
  size_t next_ = 0;                                       ///< index of the tile of scores that comes next
  const core::kernels::StripKernels* kernels_ = nullptr;  ///< null: no block is in flight
  core::kernels::ProductArgs product_ = {};
};

/// Returns the kernels for a strip that begins `rows` rows before the end of a tile. With `row_state`, the strip's
/// output state lies row by row, otherwise along the lanes. Both states give the same bits.
[[nodiscard]] const core::kernels::StripKernels& StripFor(const core::kernels::KernelTable& table, int64_t rows,
                                                          bool row_state);

/// Computes the scores, the online softmax, the product and the result of a tile's strips. All forwards share this
/// class, wherever their keys come from.
class ForwardStrips {
 public:
  using Strips = StripArray<RunningStrip, kMaxTileStrips>;

  /// All arguments must outlive the object. @param quantization  null if the output is of a float type
  ForwardStrips(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                const ForwardRows& rows, const OutputQuantization* quantization)
      : problem_(problem),
        table_(table),
        rows_(rows),
        quantization_(quantization),
        score_tile_(problem, table, rows.scores) {}

  [[nodiscard]] const ScoreTile& score_tile() const { return score_tile_; }

  /// Cuts the rows into strips and packs their queries.
  /// @param few   the kernels of few rows if the whole group has few rows, otherwise null
  /// @param keys  the keys that all rows keep; if null, the sequence's mask gives each row's keys
  /// @param row_state  whether strips have their output state by rows
  void Open(const FoldedRows& rows, const core::kernels::StripKernels* few, const tiling::Interval* keys,
            const TileScratch& scratch, Strips& strips, bool row_state = false) const;
  /// @param raw_scores  optional: receives the scores [keys][width] after all passes
  void VisitBlock(RunningStrip& strip, tiling::Interval block, const KeyRows& rows, const TileScratch& scratch,
                  float* raw_scores = nullptr) const;
  /// Visits all keys of whole rows at once (AttentionProblem::whole_rows), and rounds the probabilities as
  /// ForwardRows::quantized says.
  void VisitWholeRows(RunningStrip& strip, tiling::Interval hull, const KeyRows& rows,
                      const TileScratch& scratch) const;
  /// Returns the end of the keys, from keys.begin on, that Attend may take. All rows of the sequence see these keys,
  /// and no pass changes their scores. The end is keys.begin if there are no such keys. The end depends on the sequence
  /// and the call alone. Neither the place of rows in memory nor the strip's rows change the end.
  /// @param keys  keys of the strip's rows, within one part of the sequence's keys
  [[nodiscard]] int64_t AttendedEnd(const RunningStrip& strip, tiling::Interval keys) const;
  /// The most keys per call of Attend: one part of a decode. More calls would cost time, since each one reorders O.
  static constexpr int64_t kAttendKeys = 512;
  /// Does the work of VisitBlock with the kernels' function `attend` or attend_compressed, for at most kAttendKeys keys
  /// before AttendedEnd.
  /// @param brings  AttendArgs::brings
  void Attend(RunningStrip& strip, tiling::Interval keys, int64_t head_kv, const KeyRows& rows, bool brings) const;
  /// Does the work of VisitBlock for kernels with `scores_beside`, without dropout. When the function returns, the
  /// block's product is not yet computed. The block must have no masked pairs, and the block's values must be one run
  /// of rows.
  void VisitBlockInFlight(RunningStrip& strip, tiling::Interval block, const KeyRows& rows, const TileScratch& scratch,
                          BlockInFlight& flight, float* raw_scores = nullptr) const;
  /// Computes the product that VisitBlockInFlight has left.
  static void EndFlight(BlockInFlight& flight);
  /// Must be called when a strip has visited its keys. If a masked pair met a value that is not finite (0 * NaN is
  /// NaN), the strip is reset to its state after Open. A second visit of its keys then leaves out masked pairs.
  /// @return whether the strip must visit its keys anew
  [[nodiscard]] bool Restart(RunningStrip& strip) const;
  /// Gives a strip the statistics of rows that have seen no key.
  static void Reset(const RunningStrip& strip);
  /// Writes output and statistics.
  void Finish(const RunningStrip& strip, const TileScratch& scratch) const;
  /// Returns the sink of a lane's row, or null.
  [[nodiscard]] const float* SinkOf(const RunningStrip& strip, int64_t lane) const {
    const StripRows& lanes = strip.lanes;
    if (rows_.sink.data == nullptr) return nullptr;
    const int64_t row = problem_.sequences[static_cast<size_t>(lanes.sequence)].q_offset + lanes.row[lane];
    return rows_.sink.data + rows_.sink.where.Offset(lanes.sequence, lanes.head[lane], row);
  }
  /// Returns RowShift of a lane's final statistics, which include the sink.
  [[nodiscard]] float Shift(const RunningStrip& strip, int64_t lane) const;

 private:
  /// The statistics of a finished row in natural-log terms, and the multiplier of the row's output state.
  struct Statistics {
    float max, sum, lse, multiplier;
    bool zero;
  };

  /// Returns the statistics that the call receives for a row, if `largest` of its strip is not null.
  [[nodiscard]] Statistics ToldStatistics(const RunningStrip& strip, int64_t lane) const;
  // The function is inline: for a row of few keys, a call that returns five values takes as long as the rest.
  [[nodiscard]] inline Statistics FinalStatistics(const RunningStrip& strip, int64_t lane) const;
  static inline Statistics FinishRow(float row_max, float row_sum, float unit, bool no_keys, const float* sink,
                                     bool with_lse);
  static void FinishPlainRows(const RunningStrip& strip, float* multiplier, int32_t* zero);
  /// @param s  probabilities of the keys
  void Product(RunningStrip& strip, tiling::Interval keys, bool may_meet_masked, const KeyRows& rows,
               const TileScratch& scratch, float* s, const float* alpha) const;
  [[nodiscard]] int64_t StateFloats(const RunningStrip& strip) const { return problem_.dv * strip.kernels->rows; }
  using ProductKernel = std::remove_pointer_t<decltype(core::kernels::StripKernels::product)>;
  void MultiplyRuns(ProductKernel* product, const RunningStrip& strip, tiling::Interval keys, const KeyRows& rows,
                    const float* p, const float* alpha) const;

  const tiling::AttentionProblem& problem_;
  const core::kernels::KernelTable& table_;
  const ForwardRows& rows_;
  const OutputQuantization* quantization_;
  ScoreTile score_tile_;
};

/// Writes 0 to every output of the rows past the last packed sequence, and past the length of a padded batch element.
void WriteUnusedRows(const tiling::AttentionProblem& problem, const ForwardRows& rows);
/// Writes 0 to every output of the rows `unused` of batch element b.
void WriteUnusedRows(const tiling::AttentionProblem& problem, const ForwardRows& rows, int64_t b,
                     tiling::Interval unused);

}  // namespace fa::ops

#endif  // FA_OPS_FORWARD_STRIPS_H_
