#include "ops/tile/score_tile.h"

#include <cassert>
#include <cstddef>

#include "core/integer.h"

namespace fa::ops {

using core::kernels::kMaskedProbability;
using core::kernels::StripKernels;
using tiling::Interval;

/// Adds to `reads` the lines that the products would fetch without a list. Products that get a list fetch only the
/// lines on the list.
void ScoreTile::AddFetched(const KeyRows& rows, Interval keys, FetchRuns& reads) const {
  assert(!rows.rope_behind);  // rows with k_rope behind k come only in calls without passes
  if (rows.k.fetch != nullptr) return reads.Take(*rows.k.fetch, rows.k.fetch_lines);
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRunEnd(key, keys.end);
    const core::kernels::RowBlock k = rows.K(key);
    if (k.fetch_ahead != 0) {
      assert(k.rows == nullptr);
      const auto element = static_cast<int64_t>(SizeOf(k.dtype)), apart = k.stride * element;
      reads.AddRows(static_cast<const std::byte*>(k.data) + k.fetch_ahead * apart, end - key, problem_.d * element,
                    apart);
    }
    key = end;
  }
}

void ScoreTile::InnerProducts(const Strip& strip, Interval keys, const KeyRows& rows, float* s, float* row_max,
                              const core::kernels::ProductArgs* beside, FetchRuns* reads) const {
  const StripKernels& kernels = *strip.kernels;
  if (reads != nullptr && reads->lines() > 0) {
    // With fewer keys or columns, the register blocks of some level fetch nothing.
    constexpr int64_t kLeastKeys = 16, kLeastColumns = 24;
    if (kernels.any_dtype || kernels.in_place || keys.size() < kLeastKeys || problem_.d < kLeastColumns) {
      reads->Fetch();
    } else {
      AddFetched(rows, keys, *reads);
      core::kernels::FetchList list = reads->list();
      list.into_l1 = rows.k.fetch != nullptr && rows.k.fetch->into_l1;
      KeyRows listed = rows;
      listed.k.fetch_ahead = 0;
      listed.k.fetch = &list;
      listed.k.fetch_lines = reads->lines();
      return InnerProducts(strip, keys, listed, s, row_max, beside, nullptr);
    }
  }
  const int64_t d = problem_.d;
  const auto scores = [&](const core::kernels::ScoreArgs& x) {
    assert(kernels.ScoresTake(x.k.form(), x.k.dtype));
    if (beside == nullptr) return kernels.scores(x.k, x.keys, x.panel, x.d, x.accumulate, x.s, x.row_max);
    kernels.few_rows.scores_beside(x.k, x.keys, x.panel, x.d, x.s, x.row_max, *beside);
    beside = nullptr;
  };
  const bool rope = problem_.d_rope > 0;
  // One product can cover K and k_rope if the panel has the rope part of the queries right after their d columns.
  // Panels for kernels of few rows have another order. For kernels of bf16 pairs, d must be a multiple of their group.
  const bool pairs = kernels.operands == core::kernels::Operands::kBF16Pairs;
  if (rope && rows.rope_behind && !kernels.any_dtype && !(pairs && d % kernels.panel_group != 0)) {
    assert(!kernels.in_place);  // kernels that read in place have another panel for one product than for two
    scores({rows.K(keys.begin), keys.size(), strip.panel, d + problem_.d_rope, false, s, row_max});
    return;
  }
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRunEnd(key, keys.end);
    float *to = s + (key - keys.begin) * strip.lanes.width, *max = rope ? nullptr : row_max;
    core::kernels::RowBlock k = rows.K(key);
    // A product over a run of evenly spaced rows prefetches its share of the cache lines.
    k.fetch_lines = core::CeilDiv(k.fetch_lines * (end - key), keys.size());
    scores({k, end - key, strip.panel, d, false, to, max});
    key = end;
  }
  if (!rope) return;
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRopeRunEnd(key, keys.end);
    kernels.scores(rows.KRope(key), end - key, strip.panel + kernels.PanelRows(d) * strip.lanes.width, problem_.d_rope,
                   true, s + (key - keys.begin) * strip.lanes.width, row_max);
    key = end;
  }
}

void ScoreTile::MarkMasked(const Strip& strip, Interval keys, float* x) const {
  const StripKernels& kernels = *strip.kernels;
  passes_.MaskInterval(kernels, strip.lanes, keys.begin, keys.size(), kMaskedProbability, x);
  passes_.MaskDense(kernels, strip.lanes, keys, kMaskedProbability, x);
}

}  // namespace fa::ops
