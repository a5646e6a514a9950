// The gradients of parameters: sums over rows, keys or the batch. Each is one serial chain in a fixed order over
// partial sums that the tiles left (O(B N S) work, against O(B N S^2 D) of the tiles), so its bits do not depend on
// threads.

#include "ops/dense/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

const tiling::AttentionProblem& ProblemOf(const BoundAttentionGrad& bound) { return bound.forward.problem; }

void WriteSinkGradient(const BoundAttentionGrad& bound, const AttentionGradArgs& args, const float* delta,
                       const BackwardBuffers& buffers) {
  const auto& problem = ProblemOf(bound);
  const auto* sinks = static_cast<const float*>(args.sink.data);
  for (int64_t n = 0; n < problem.heads; ++n) {
    double sum = 0;
    for (size_t b = 0; b < problem.sequences.size(); ++b) {
      const tiling::Sequence& sequence = problem.sequences[b];
      const auto index = static_cast<int64_t>(b);
      for (int64_t i = 0; i < sequence.sq; ++i) {
        const int64_t row = sequence.q_offset + i;
        const auto statistic = [&](const TensorView& tensor, const layout::Stats& where) {
          return static_cast<const float*>(tensor.data)[where.Offset(index, n, row)];
        };
        const float row_sum = statistic(args.softmax_sum, bound.forward.softmax_sum);
        if (row_sum == 0) continue;  // Sk = 0
        const double p =
            std::exp(static_cast<double>(sinks[n]) - statistic(args.softmax_max, bound.forward.softmax_max)) / row_sum;
        sum -= p * delta[buffers.RowBase(index) + n * sequence.sq + i];
      }
    }
    static_cast<float*>(args.dsink.data)[n] = static_cast<float>(sum);
  }
}

void WriteSlopeGradient(const BoundAttentionGrad& bound, const AttentionGradArgs& args, const float* rows,
                        const BackwardBuffers& buffers) {
  const auto& problem = ProblemOf(bound);
  auto* slopes = static_cast<float*>(args.dslopes.data);
  for (int64_t n = 0; n < problem.heads; ++n) {
    double shared = 0;
    for (size_t b = 0; b < problem.sequences.size(); ++b) {
      const auto index = static_cast<int64_t>(b);
      const int64_t sq = problem.sequences[b].sq;
      const float* row = rows + buffers.RowBase(index) + n * sq;
      double sum = 0;
      for (int64_t i = 0; i < sq; ++i) sum -= row[i];
      shared += sum;
      if (!bound.dslopes_shared) slopes[index * bound.dslopes_batch_stride + n] = static_cast<float>(sum);
    }
    if (bound.dslopes_shared) slopes[n] = static_cast<float>(shared);
  }
}

/// Rounds `count` f32 values into consecutive elements of dpse.
void StoreBias(const core::kernels::KernelTable& table, const BoundAttentionGrad& bound, const AttentionGradArgs& args,
               const float* from, int64_t count, int64_t offset) {
  const auto element = static_cast<int64_t>(SizeOf(bound.dpse.dtype));
  table.rows->narrow(from, count, 1, count, 1.0f,
                     {static_cast<std::byte*>(args.dpse.data) + offset * element, bound.dpse.dtype, count});
}

/// Forms [B|1, N, 1, Sk] and the packed one of one row per head.
void WriteKeyBias(const BoundAttentionGrad& bound, const core::kernels::KernelTable& table,
                  const AttentionGradArgs& args, float* keys, const BackwardBuffers& buffers) {
  const auto& problem = ProblemOf(bound);
  const auto count = static_cast<int64_t>(problem.sequences.size());
  for (int64_t n = 0; n < problem.heads; ++n) {
    for (int64_t b = 0; b < count; ++b) {
      const int64_t sk = problem.sequences[static_cast<size_t>(b)].sk;
      float* own = keys + buffers.KeyBase(b) + n * sk;
      const auto& where = bound.dpse.sequences[static_cast<size_t>(b)];
      if (bound.dpse.shared_batch && b > 0) {
        float* first = keys + n * sk;
        for (int64_t j = 0; j < sk; ++j) first[j] += own[j];
      }
      if (!bound.dpse.shared_batch) StoreBias(table, bound, args, own, sk, where.offset + n * where.head);
    }
    if (!bound.dpse.shared_batch || count == 0) continue;
    const int64_t sk = problem.sequences.front().sk;
    StoreBias(table, bound, args, keys + n * sk, sk,
              bound.dpse.sequences.front().offset + n * bound.dpse.sequences.front().head);
  }
}

/// Form [1, N, Sq, Sk].
void WritePairBias(const BoundAttentionGrad& bound, const core::kernels::KernelTable& table,
                   const AttentionGradArgs& args, const float* pairs) {
  const auto& problem = ProblemOf(bound);
  const tiling::Sequence& sequence = problem.sequences.front();
  const auto& where = bound.dpse.sequences.front();
  for (int64_t n = 0; n < problem.heads; ++n) {
    for (int64_t i = 0; i < sequence.sq; ++i) {
      StoreBias(table, bound, args, pairs + (n * sequence.sq + i) * sequence.sk, sequence.sk,
                where.offset + n * where.head + i * where.row);
    }
  }
}

/// A bias whose batch is empty: its gradient is a sum of nothing.
void ClearBias(const MutableTensorView& dpse) {
  const Dims stride = layout::FilledStride(dpse.shape, dpse.stride);
  const auto element = static_cast<int64_t>(SizeOf(dpse.dtype));
  const int last = dpse.shape.rank() - 1;
  int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= dpse.shape[i];
  for (int64_t r = 0; r < rows; ++r) {
    int64_t offset = 0, rest = r;
    for (int i = last - 1; i >= 0; --i) {
      offset += rest % dpse.shape[i] * stride[i];
      rest /= dpse.shape[i];
    }
    std::memset(static_cast<std::byte*>(dpse.data) + offset * element, 0,
                static_cast<size_t>(dpse.shape[last] * element));
  }
}

void ClearRows(const MutableTensorView& tensor, const layout::Rows& rows, int64_t heads, int64_t columns,
               tiling::Interval tail) {
  const auto element = static_cast<int64_t>(SizeOf(rows.dtype));
  for (int64_t row = tail.begin; row < tail.end; ++row) {
    for (int64_t n = 0; n < heads; ++n) {
      std::memset(static_cast<std::byte*>(tensor.data) + rows.Offset(0, n, row) * element, 0,
                  static_cast<size_t>(columns * element));
    }
  }
}

}  // namespace

void ClearGradientSums(const BoundAttentionGrad& bound, const BackwardBuffers& buffers, std::byte* workspace) {
  const auto& problem = ProblemOf(bound);
  if (float* bias = buffers.KeyBias(workspace); bias != nullptr) {
    int64_t keys = 0;
    for (const tiling::Sequence& sequence : problem.sequences) keys += problem.heads * sequence.sk;
    std::fill_n(bias, keys, 0.0f);
  }
  if (float* bias = buffers.PairBias(workspace); bias != nullptr) {
    const tiling::Sequence& first = problem.sequences.front();
    std::fill_n(bias, problem.heads * first.sq * first.sk, 0.0f);
  }
}

void WriteGradientSums(const BoundAttentionGrad& bound, const core::kernels::KernelTable& table,
                       const AttentionGradArgs& args, const BackwardBuffers& buffers, std::byte* workspace) {
  if (bound.has_dpse && ProblemOf(bound).sequences.empty()) ClearBias(args.dpse);
  if (bound.has_dsink) WriteSinkGradient(bound, args, buffers.RowDelta(workspace), buffers);
  if (bound.has_dslopes) WriteSlopeGradient(bound, args, buffers.RowSlope(workspace), buffers);
  if (float* keys = buffers.KeyBias(workspace); keys != nullptr) WriteKeyBias(bound, table, args, keys, buffers);
  if (const float* pairs = buffers.PairBias(workspace); pairs != nullptr) WritePairBias(bound, table, args, pairs);
}

void WriteTailGradients(const BoundAttentionGrad& bound, const AttentionGradArgs& args) {
  const BoundAttention& forward = bound.forward;
  if (forward.cu_q.empty()) return;
  const auto& problem = forward.problem;
  const tiling::Interval q_tail{forward.tail_row_begin, forward.tail_row_end};
  const tiling::Interval k_tail{forward.cu_kv.back(), args.k.shape[0]};
  ClearRows(args.dq, bound.dq, problem.heads, problem.d, q_tail);
  ClearRows(args.dk, bound.dk, problem.heads_kv, problem.d, k_tail);
  ClearRows(args.dv, bound.dv, problem.heads_kv, problem.dv, k_tail);
  if (!forward.has_rope) return;
  ClearRows(args.dq_rope, bound.dq_rope, problem.heads, problem.d_rope, q_tail);
  ClearRows(args.dk_rope, bound.dk_rope, problem.heads_kv, problem.d_rope, k_tail);
}

}  // namespace fa::ops
