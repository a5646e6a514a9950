// Computes the gradients of parameters, which are sums over rows, keys or the batch. Each gradient adds up the partial
// sums that the tiles have left, one by one in a fixed order. So the bits do not depend on threads. This takes O(B N S)
// additions, while the tiles take O(B N S^2 D).

#include "ops/dense/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "layout/bind_layout.h"
#include "ops/tile/row_probability.h"

namespace fa::ops {
namespace {

void WriteHeadSinkGradient(const tiling::AttentionProblem& problem, const GradRows& rows, const float* delta,
                           const BackwardBuffers& buffers) {
  for (int64_t n = 0; n < problem.heads; ++n) {
    double sum = 0;
    for (size_t b = 0; b < problem.sequences.size(); ++b) {
      const tiling::Sequence& sequence = problem.sequences[b];
      const auto index = static_cast<int64_t>(b);
      const float* of_rows = delta + buffers.RowBase(index) + n * sequence.sq;
      sum = AddSinkRows(rows, rows.sink.At(0, n, 0), sequence, index, n, of_rows, sum);
    }
    rows.dsink.Write(0, n, 0, static_cast<float>(sum));
  }
}

/// Writes the gradients of sinks per row. If batch elements share the sinks, adds them up with b ascending.
void WriteRowSinkGradient(const tiling::AttentionProblem& problem, const GradRows& rows, const float* delta,
                          const BackwardBuffers& buffers) {
  const auto count = static_cast<int64_t>(problem.sequences.size());
  const auto of_row = [&](int64_t b, int64_t n, int64_t i) {
    const tiling::Sequence& sequence = problem.sequences[static_cast<size_t>(b)];
    const int64_t row = sequence.q_offset + i;
    const float of = delta[buffers.RowBase(b) + n * sequence.sq + i];
    return SinkGradient(rows, rows.sink.At(b, n, row), sequence, b, n, i, of);
  };
  for (int64_t n = 0; n < problem.heads; ++n) {
    for (int64_t i = 0; i < rows.dsink_shared_rows; ++i) {
      double sum = 0;
      for (int64_t b = 0; b < count; ++b) sum += of_row(b, n, i);
      rows.dsink.Write(0, n, i, static_cast<float>(sum));
    }
    if (rows.dsink_shared_rows > 0) continue;
    for (int64_t b = 0; b < count; ++b) {
      const tiling::Sequence& sequence = problem.sequences[static_cast<size_t>(b)];
      for (int64_t i = 0; i < sequence.sq; ++i) {
        rows.dsink.Write(b, n, sequence.q_offset + i, static_cast<float>(of_row(b, n, i)));
      }
    }
    for (int64_t row = rows.unused_queries.begin; row < rows.unused_queries.end; ++row) rows.dsink.Write(0, n, row, 0);
  }
}

void WriteSinkGradient(const tiling::AttentionProblem& problem, const GradRows& rows, const float* delta,
                       const BackwardBuffers& buffers) {
  if (rows.dsink_per_row) return WriteRowSinkGradient(problem, rows, delta, buffers);
  WriteHeadSinkGradient(problem, rows, delta, buffers);
}

void WriteSlopeGradient(const tiling::AttentionProblem& problem, const GradRows& rows, const float* slope_rows,
                        const BackwardBuffers& buffers) {
  for (int64_t n = 0; n < problem.heads; ++n) {
    double shared = 0;
    for (size_t b = 0; b < problem.sequences.size(); ++b) {
      const auto index = static_cast<int64_t>(b);
      const int64_t sq = problem.sequences[b].sq;
      const double sum = AddSlopeRows(slope_rows + buffers.RowBase(index) + n * sq, sq, 0);
      shared += sum;
      if (!rows.dslopes_shared) rows.dslopes.Write(index, n, 0, static_cast<float>(sum));
    }
    if (rows.dslopes_shared) rows.dslopes.Write(0, n, 0, static_cast<float>(shared));
  }
}

/// Writes the gradients of biases [B|1, N, 1, Sk], and of packed biases with one row per head. Heads that share a bias
/// are added up first, then batch elements.
void WriteKeyBias(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                  const MutablePseView& dpse, float* keys, const BackwardBuffers& buffers) {
  const bool shared_batch = dpse.where->shared_batch, shared_heads = dpse.where->shared_heads;
  const auto count = static_cast<int64_t>(problem.sequences.size());
  const int64_t heads = shared_heads ? 1 : problem.heads;
  const auto add = [](float* to, const float* from, int64_t size) {
    for (int64_t j = 0; j < size; ++j) to[j] += from[j];
  };
  for (int64_t b = 0; b < count; ++b) {
    const int64_t sk = problem.sequences[static_cast<size_t>(b)].sk;
    float* own = keys + buffers.KeyBase(b);
    for (int64_t n = 1; n < problem.heads && shared_heads; ++n) add(own, own + n * sk, sk);
    if (shared_batch && b > 0) add(keys, own, heads * sk);
  }
  for (int64_t b = 0; b < (shared_batch ? std::min<int64_t>(count, 1) : count); ++b) {
    const int64_t sk = problem.sequences[static_cast<size_t>(b)].sk;
    for (int64_t n = 0; n < heads; ++n) {
      WriteBiasRow(table, dpse.Of(b), n, 0, keys + buffers.KeyBase(b) + n * sk, sk);
    }
  }
}

void ClearRows(const layout::MutableRowsView& tensor, int64_t heads, int64_t columns, tiling::Interval unused) {
  for (int64_t row = unused.begin; row < unused.end; ++row) {
    for (int64_t n = 0; n < heads; ++n) tensor.Clear(0, n, row, columns);
  }
}

}  // namespace

void WriteBiasRow(const core::kernels::KernelTable& table, const layout::MutableRowsView& dpse, int64_t n, int64_t i,
                  const float* from, int64_t count) {
  table.rows->narrow(from, count, 1, count, 1.0f, {dpse.At(0, n, i), dpse.rows.dtype, count});
}

void WritePairBias(const core::kernels::KernelTable& table, const PairSizes& sizes, const float* pairs,
                   const layout::MutableRowsView& dpse) {
  for (int64_t n = 0; n < sizes.heads; ++n) {
    for (int64_t i = 0; i < sizes.rows; ++i) {
      WriteBiasRow(table, dpse, n, i, pairs + (n * sizes.rows + i) * sizes.keys, sizes.keys);
    }
  }
}

double SinkGradient(const GradRows& rows, float sink, const tiling::Sequence& sequence, int64_t b, int64_t head,
                    int64_t i, float delta) {
  const int64_t row = sequence.q_offset + i;
  const float row_sum = rows.softmax_sum.At(b, head, row);
  if (row_sum == 0) return 0;  // the row's sequence has no keys
  const double p = ExpBelow<double>(sink, rows.softmax_max.At(b, head, row)) / row_sum;
  return -(p * delta);
}

double AddSinkRows(const GradRows& rows, float sink, const tiling::Sequence& sequence, int64_t b, int64_t head,
                   const float* delta, double sum) {
  for (int64_t i = 0; i < sequence.sq; ++i) sum += SinkGradient(rows, sink, sequence, b, head, i, delta[i]);
  return sum;
}

double AddSlopeRows(const float* slope_rows, int64_t count, double sum) {
  for (int64_t i = 0; i < count; ++i) sum -= slope_rows[i];
  return sum;
}

void ClearGradientSums(const tiling::AttentionProblem& problem, const BackwardBuffers& buffers, std::byte* workspace) {
  if (float* bias = buffers.KeyBias(workspace); bias != nullptr) {
    int64_t keys = 0;
    for (const tiling::Sequence& sequence : problem.sequences) keys += problem.heads * sequence.sk;
    std::fill_n(bias, keys, 0.0f);
  }
  if (float* bias = buffers.PairBias(workspace); bias != nullptr) {
    std::fill_n(bias, buffers.pair_bias().count(), 0.0f);
  }
}

void WriteGradientSums(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                       const GradRows& rows, const BackwardBuffers& buffers, std::byte* workspace) {
  if (rows.dsink.data != nullptr) WriteSinkGradient(problem, rows, buffers.RowDelta(workspace), buffers);
  if (rows.dslopes.data != nullptr) WriteSlopeGradient(problem, rows, buffers.RowSlope(workspace), buffers);
  if (float* keys = buffers.KeyBias(workspace); keys != nullptr) WriteKeyBias(problem, table, rows.dpse, keys, buffers);
  if (const float* pairs = buffers.PairBias(workspace); pairs != nullptr) {
    const PairBiasSizes& sizes = buffers.pair_bias();
    for (int64_t b = 0; b < sizes.batch; ++b) {
      WritePairBias(table, {.heads = sizes.heads, .rows = sizes.rows, .keys = sizes.keys},
                    pairs + sizes.Offset(b, 0, 0), rows.dpse.Of(b));
    }
  }
}

void ClearBiasGradient(const MutableTensorView& dpse) {
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

void WriteTailGradients(const tiling::AttentionProblem& problem, const GradRows& rows) {
  ClearRows(rows.dq, problem.heads, problem.d, rows.unused_queries);
  ClearRows(rows.dk, problem.heads_kv, problem.d, rows.unused_keys);
  ClearRows(rows.dv, problem.heads_kv, problem.dv, rows.unused_keys);
  if (problem.d_rope == 0) return;
  ClearRows(rows.dq_rope, problem.heads, problem.d_rope, rows.unused_queries);
  ClearRows(rows.dk_rope, problem.heads_kv, problem.d_rope, rows.unused_keys);
}

}  // namespace fa::ops
