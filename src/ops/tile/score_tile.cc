#include "ops/tile/score_tile.h"

#include <cassert>

namespace fa::ops {

using core::kernels::kMaskedProbability;
using core::kernels::StripKernels;
using tiling::Interval;

void ScoreTile::InnerProducts(const Strip& strip, Interval keys, const KeyRows& rows, float* s, float* row_max,
                              const BesideScores* beside) const {
  const StripKernels& kernels = *strip.kernels;
  const int64_t d = problem_.d;
  const auto scores = [&](const core::kernels::ScoreArgs& x) {
    if (beside == nullptr) return kernels.scores(x.k, x.keys, x.panel, x.d, x.accumulate, x.s, x.row_max);
    if (kernels.overlapped != nullptr) {
      kernels.overlapped(beside->product, beside->softmax, &x);
    } else {
      kernels.scores_beside(x.k, x.keys, x.panel, x.d, x.s, x.row_max, *beside->product);
    }
    beside = nullptr;
  };
  const bool rope = problem_.d_rope > 0;
  // The packed queries follow each other too, except for kernels of few rows and for half a group of columns in pairs.
  const bool pairs = kernels.operands == core::kernels::Operands::kBF16Pairs;
  if (rope && rows.rope_behind && !kernels.any_dtype && !(pairs && d % kernels.panel_group != 0)) {
    assert(!kernels.in_place);  // their panel of one product differs from that of two
    scores({rows.K(keys.begin), keys.size(), strip.panel, d + problem_.d_rope, false, s, row_max});
    return;
  }
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRunEnd(key, keys.end);
    float *to = s + (key - keys.begin) * strip.lanes.width, *max = rope ? nullptr : row_max;
    scores({rows.K(key), end - key, strip.panel, d, false, to, max});
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
  if (passes_.inputs().has_dense_mask()) {
    passes_.MaskDense(kernels, strip.lanes, keys.begin, keys.size(), kMaskedProbability, x);
  }
}

}  // namespace fa::ops
