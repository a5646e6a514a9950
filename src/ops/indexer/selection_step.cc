#include "ops/indexer/selection_step.h"

#include <algorithm>
#include <limits>

#include "core/kernels/indexer/indexer_kernel_types.h"

namespace fa::ops {
namespace {

constexpr float kUnusedValue = -std::numeric_limits<float>::infinity();

}  // namespace

SelectionStep::Scratch::Scratch(Carver& carver, const SelectionProblem& problem,
                                const core::kernels::KernelTable& table)
    : values(carver.Floats(problem.entries)),
      top_k(core::kernels::IndexerKernelsFor(table.isa), carver, problem.sequences.max_sk, problem.entries) {}

std::string SelectionStep::ResultOf(const SelectionProblem& problem) {
  return "the " + std::to_string(problem.entries) + " best";
}

size_t SelectionStep::ScratchBytes(const SelectionProblem& problem, const core::kernels::KernelTable& table) {
  Carver carver(nullptr);
  static_cast<void>(Scratch(carver, problem, table));
  return carver.used();
}

SelectionStep::Scratch SelectionStep::ScratchAt(std::byte* memory) const {
  Carver carver(memory);
  return {carver, problem_, table_};
}

void SelectionStep::operator()(const SparseToken& token, float* scores, std::byte* memory) const {
  const Scratch scratch = ScratchAt(memory);
  const SparseSequences& sequences = problem_.sequences;
  const int64_t row = sequences.Row(token);
  auto* indices = reinterpret_cast<int32_t*>(rows_.indices.At(token.sequence, 0, row));
  const int64_t used = scratch.top_k.Select(scores, sequences.Limit(token), indices);
  // The selection treats -0 as +0, so -0 is written as +0.
  for (int64_t i = 0; i < used; ++i) scratch.values[i] = scores[indices[i]] + 0.0F;
  if (rows_.index_offset.data != nullptr) {
    // Unsigned sums are defined even if another thread changes the offset after it was checked.
    const auto offset = *reinterpret_cast<const uint32_t*>(rows_.index_offset.At(token.sequence, 0, row));
    for (int64_t i = 0; i < used; ++i) indices[i] = static_cast<int32_t>(static_cast<uint32_t>(indices[i]) + offset);
  }
  WriteEntries(token.sequence, row, used, scratch.values);
}

/// Writes index -1 and value -inf to the entries after the used ones. `values` has room for all entries.
void SelectionStep::WriteEntries(int64_t batch, int64_t row, int64_t used, float* values) const {
  const int64_t entries = problem_.entries;
  auto* indices = reinterpret_cast<int32_t*>(rows_.indices.At(batch, 0, row));
  std::fill(indices + used, indices + entries, -1);
  if (rows_.values.data == nullptr) return;
  std::fill(values + used, values + entries, kUnusedValue);
  table_.rows->narrow(values, entries, 1, entries, 1,
                      {rows_.values.At(batch, 0, row), rows_.values.rows.dtype, entries});
}

void SelectionStep::WriteUnusedRows(std::byte* memory) const {
  const Scratch scratch = ScratchAt(memory);
  problem_.sequences.ForUnusedQueries([&](int64_t batch, tiling::Interval rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) WriteEntries(batch, row, 0, scratch.values);
  });
}

}  // namespace fa::ops
