#include "ops/inference/int8_panels.h"

#include <algorithm>
#include <cstring>

#include "core/saturating.h"
#include "ops/tile/strip.h"

namespace fa::ops {

using core::kernels::RowBlock;

Int8Panels::Int8Panels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                       const core::kernels::Int8Table& kernels, const Source& source, std::byte* slots)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      source_(source),
      slots_(slots),
      slot_bytes_(SlotBytes(problem, plan, kernels)) {}

size_t Int8Panels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                             const core::kernels::Int8Table& kernels) {
  using core::SaturatedProduct;
  const int64_t k = SaturatedProduct(plan.slot_rows, kernels.Words(problem.d) + 1);
  const int64_t v = SaturatedProduct(kernels.PanelBlocks(problem.dv), BlockWords(plan.slot_rows, kernels));
  const int64_t bytes = SaturatedProduct(core::SaturatedSum(k, v), static_cast<int64_t>(sizeof(uint32_t)));
  return static_cast<size_t>(core::SaturatedRoundUp(bytes, 64));
}

namespace {

/// Calls pack(rows, first, count) for the rows of a head in [begin, end). In each call the rows are evenly spaced. All
/// counts except the last are multiples of kKeyStep.
template <typename PackRows>
void ForEvenRuns(const layout::HeadRows& head, int64_t begin, int64_t end, int64_t columns, std::byte* staging,
                 PackRows&& pack) {
  for (int64_t row = begin; row < end;) {
    const int64_t run = head.RunEnd(row, end, 0) - row;
    if (row + run == end || run >= kKeyStep) {
      const int64_t count = row + run == end ? run : run / kKeyStep * kKeyStep;
      pack(RowBlock{.data = head.At(row), .dtype = head.dtype, .stride = head.stride}, row, count);
      row += count;
      continue;
    }
    const int64_t count = std::min(kKeyStep, end - row);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(staging + i * columns, head.At(row + i), static_cast<size_t>(columns));
    }
    pack(RowBlock{.data = staging, .dtype = head.dtype, .stride = columns}, row, count);
    row += count;
  }
}

}  // namespace

void Int8Panels::Pack(const tiling::PackItem& item, const Staging& staging) const {
  const tiling::Sequence& sequence = problem_.sequences[static_cast<size_t>(item.sequence)];
  // item.row_end may lie past the end of the sequence, because it is rounded up to a whole group.
  const int64_t end = std::min(item.row_end, sequence.sk);
  const auto head = [&](const layout::StoredRows& rows) {
    return rows.Head(item.sequence, item.head_kv, sequence.k_offset);
  };
  ForEvenRuns(head(source_.k), item.row_begin, end, problem_.d, staging.k,
              [&](const RowBlock& rows, int64_t first, int64_t count) {
                kernels_.pack_keys(rows, count, problem_.d, source_.sign, SlotK(item.slot) + first * words(),
                                   SlotStart(item.slot) + first);
              });
  ForEvenRuns(head(source_.v), item.row_begin, end, problem_.dv, staging.v,
              [&](const RowBlock& rows, int64_t first, int64_t count) {
                kernels_.pack_values(rows, count, problem_.dv, v_stride(),
                                     SlotV(item.slot) + first / kernels_.group * kernels_.columns);
              });
}

}  // namespace fa::ops
