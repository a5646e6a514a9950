#include "ops/dense/attended_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/integer.h"

namespace fa::ops {
namespace {

using core::kernels::kMaskedScore;
using core::kernels::TileAttendArgs;
using core::kernels::TileAttendStrip;
using tiling::Interval;

constexpr int64_t kAttendedKeys = TileAttendArgs::kKeys;
constexpr int64_t kAttendedLanes = 32;

// The probabilities of a row are relative to one of the row's scores, the reference. So the row's sum is at least 1 up
// to rounding. A sum above kMostSum shows that the reference is too low, long before f32 overflows.
constexpr float kMostSum = 0x1p64f, kLeastSum = 0x1p-1f;
// The weight of a sink is e^(sink - reference). If the sink is at most this much above the reference, the weight's
// reciprocal is a normal number.
constexpr float kMostAboveReference = 80;

// If K and V of a KV head take more than kGroupedHeadBytes, they do not stay in the 2 MiB of L2 of the cores with a
// tile unit. On an Emerald Rapids, groups of eight strips and blocks of eight chunks were the fastest choice for such
// heads. For smaller heads single strips with blocks of four chunks were the fastest.
constexpr int64_t kGroupedHeadBytes = int64_t{1} << 20, kAttendedGroup = 8, kAttendedChunks = 4;

/// What masks and passes need to know about the strips of a call of attend_tiles.
struct Edits {
  const ForwardStrips& forward;
  const ForwardStrips::Strips& strips;
  float* staging;
};

/// Implements TileAttendArgs::edit.
void Edit(const void* context, int64_t index, int64_t chunk, float* s) {
  const auto& edits = *static_cast<const Edits*>(context);
  const RunningStrip& strip = edits.strips[index];
  const int64_t first = chunk * kAttendedKeys;
  const Interval keys = strip.KeysIn({first, first + kAttendedKeys});
  const int64_t begin = keys.empty() ? kAttendedKeys : keys.begin - first,
                end = keys.empty() ? kAttendedKeys : keys.end - first;
  std::fill(s, s + begin * kAttendedLanes, kMaskedScore);
  std::fill(s + end * kAttendedLanes, s + kAttendedKeys * kAttendedLanes, kMaskedScore);
  if (keys.empty()) return;
  const auto computed = [](Interval /*keys*/, float* /*s*/, float* /*row_max*/, const FetchRuns* reads = nullptr) {
    if (reads != nullptr) reads->Fetch();
  };
  edits.forward.score_tile().Fill(strip, keys, computed, edits.staging, s + begin * kAttendedLanes, nullptr, nullptr);
}

}  // namespace

bool AttendedTiles::Takes(const core::kernels::KernelTable& table, const tiling::AttentionProblem& problem) {
  constexpr int64_t kColumns = TileAttendArgs::kColumns;
  return table.rows->attends_tiles && table.pairs() && problem.d % kColumns == 0 && problem.d_rope % kColumns == 0 &&
         problem.dv % kColumns == 0 && problem.d > 0 && problem.dv > 0;
}

void AttendedTiles::Visit(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const {
  const ScorePasses& passes = strips_.score_tile().passes();
  const bool plain = !passes.changes_scores() && !passes.inputs().has_dense_mask();
  const bool tells =
      rows_.softmax_max.data != nullptr || rows_.softmax_sum.data != nullptr || rows_.lse.data != nullptr;
  StripArray<TileAttendStrip, kMaxTileStrips> attended;
  int64_t sk = 0;
  for (int64_t i = 0; i < strips.size(); ++i) {
    RunningStrip& strip = strips[i];
    sk = problem_.sequences[static_cast<size_t>(strip.lanes.sequence)].sk;
    const Interval chunks = Chunks(strip);
    float* lanes = scratch.attended_lanes + i * 3 * kAttendedLanes;
    TileAttendStrip& of = attended.Add({.panel = strip.panel,
                                        .o = strip.state,
                                        .row_max = strip.row_max,
                                        .row_sum = strip.row_sum,
                                        .shift = lanes,
                                        .largest = tells ? lanes + kAttendedLanes : nullptr,
                                        .whole_sum = tells ? lanes + 2 * kAttendedLanes : nullptr});
    strip.largest = of.largest;
    strip.whole_sum = of.whole_sum;
    if (chunks.empty()) continue;
    of.begin = chunks.begin;
    of.end = chunks.end;
    if (plain) {
      of.plain_begin = core::CeilDiv(strip.full.begin, kAttendedKeys);
      of.plain_end = std::min(strip.full.end, sk) / kAttendedKeys;
    }
    strip.started = true;
  }
  const Edits edits{strips_, strips, scratch.bias};
  const int64_t columns = problem_.d + problem_.d_rope;
  const bool grouped = 2 * sk * (columns + problem_.dv) > kGroupedHeadBytes;
  strips[0].kernels->tile_loops->attend({.k = keys.k,
                                         .v = keys.v,
                                         .value_chunks = keys.value_chunks,
                                         .d = columns,
                                         .dv = problem_.dv,
                                         .factor = passes.scale().exp2_factor,
                                         .strips = attended.data(),
                                         .strip_count = attended.size(),
                                         .whole_sums = tells,
                                         .group = grouped ? kAttendedGroup : 1,
                                         .chunks = grouped ? TileAttendArgs::kMostChunks : kAttendedChunks,
                                         .memory = scratch.attended,
                                         .edit = Edit,
                                         .context = &edits});
}

/// Returns the chunks of keys that a strip visits.
Interval AttendedTiles::Chunks(const RunningStrip& strip) const {
  const Interval kept = strips_.score_tile().KeptKeys(strip, strip.hull);
  if (kept.empty()) return {};
  return {kept.begin / kAttendedKeys, core::CeilDiv(kept.end, kAttendedKeys)};
}

bool AttendedTiles::MeetsReplaced(const KeyTiles& keys, const RunningStrip& strip) const {
  const Interval chunks = Chunks(strip);
  const bool* end = keys.replaced + chunks.end;
  return std::find(keys.replaced + chunks.begin, end, true) != end;
}

bool AttendedTiles::IsFinite(const RunningStrip& strip, int64_t lane) const {
  for (int64_t c = 0; c < problem_.dv; ++c) {
    if (!std::isfinite(strip.state[c * kAttendedLanes + lane])) return false;
  }
  return true;
}

bool AttendedTiles::SinkIsFarAbove(const RunningStrip& strip, int64_t lane) const {
  const float unit = strips_.score_tile().passes().scale().unit;
  const float* sink = strips_.SinkOf(strip, lane);
  return sink != nullptr && *sink - strip.row_max[lane] * unit > kMostAboveReference;
}

/// Sets good_lanes of a strip that the loop has computed. Returns whether all lanes in use are good.
bool AttendedTiles::FindGoodLanes(RunningStrip& strip) const {
  const bool finite = kernels_.all_finite(strip.state, DType::kF32, problem_.dv * kAttendedLanes);
  bool all = true;
  strip.good_lanes = 0;
  for (int64_t lane = 0; lane < strip.lanes.count; ++lane) {
    const float sum = strip.row_sum[lane];
    const bool empty = strip.row_max[lane] == kMaskedScore && sum == 0;
    const bool good = empty || (sum >= kLeastSum && sum <= kMostSum && (finite || IsFinite(strip, lane)) &&
                                !SinkIsFarAbove(strip, lane));
    strip.good_lanes |= uint32_t{good} << lane;
    all = all && good;
  }
  return all;
}

float* AttendedTiles::KeptLanes(const TileScratch& scratch, int64_t strip) const {
  return scratch.good + strip * (problem_.dv + 2) * kAttendedLanes;
}

bool AttendedTiles::Reopen(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const {
  bool any = false;
  for (int64_t i = 0; i < strips.size(); ++i) {
    RunningStrip& strip = strips[i];
    if (!strip.started) continue;
    const bool all_good = FindGoodLanes(strip);
    if (all_good && !MeetsReplaced(keys, strip)) continue;
    float* to = KeptLanes(scratch, i);
    std::memcpy(to, strip.row_max, sizeof(float) * kAttendedLanes);
    std::memcpy(to + kAttendedLanes, strip.row_sum, sizeof(float) * kAttendedLanes);
    std::memcpy(to + 2 * kAttendedLanes, strip.state,
                sizeof(float) * static_cast<size_t>(problem_.dv * kAttendedLanes));
    ForwardStrips::Reset(strip);
    strip.started = false;
    strip.skips_masked = any = true;
  }
  return any;
}

void AttendedTiles::Restore(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const {
  for (int64_t i = 0; i < strips.size(); ++i) {
    RunningStrip& strip = strips[i];
    if (!strip.skips_masked) continue;
    const bool meets = MeetsReplaced(keys, strip);
    for (int64_t lane = 0; lane < strip.lanes.count; ++lane) {
      // If a row sees an element of V that is not finite, its output is not finite.
      if ((strip.good_lanes >> lane & 1) == 0 || (meets && !IsFinite(strip, lane))) {
        if (strip.largest == nullptr) continue;
        strip.largest[lane] = strip.row_max[lane];
        strip.whole_sum[lane] = strip.row_sum[lane];
        continue;
      }
      const float* from = KeptLanes(scratch, i) + lane;
      strip.row_max[lane] = from[0];
      strip.row_sum[lane] = from[kAttendedLanes];
      for (int64_t c = 0; c < problem_.dv; ++c) {
        strip.state[c * kAttendedLanes + lane] = from[(c + 2) * kAttendedLanes];
      }
    }
  }
}

}  // namespace fa::ops
