#include "ranks/run/parameter_sums.h"

#include <algorithm>
#include <limits>
#include <span>

#include "ops/dense/gradient_sums.h"

namespace fa::ops {

ParameterSums::ParameterSums(const BoundGradRanks& bound, tiling::WorkspacePlan& workspace)
    : has_sink_(bound.has_dsink),
      has_slopes_(bound.has_dslopes),
      slopes_shared_(bound.dslopes_shared),
      heads_(bound.forward.whole.problem.heads),
      result_sets_(bound.forward.call.parameter_floats),
      slope_stride_(bound.dslopes_batch_stride) {
  if (!has_sums()) return;
  const auto ranks = static_cast<size_t>(bound.forward.call.ranks());
  chains_ = workspace.Book("chains of dsink and dslopes", chain_bytes());
  own_ = workspace.Book("dsink and dslopes", ResultFloats() * sizeof(float));
  all_ = workspace.Book("dsink and dslopes of all ranks", ResultFloats() * sizeof(float), static_cast<int64_t>(ranks));
}

void ParameterSums::Clear(std::byte* workspace) const {
  if (!has_sums()) return;
  std::fill_n(Chains(workspace), heads_, Chain());
  std::fill_n(Own(workspace), ResultFloats(), 0.0f);
}

void ParameterSums::Spoil(std::byte* workspace) const {
  if (!has_sums()) return;
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(Chains(workspace), heads_, Chain{kNothing, kNothing, kNothing});
  std::fill_n(Own(workspace), ResultFloats(), std::numeric_limits<float>::quiet_NaN());
}

void ParameterSums::Add(const Rows& of, Chain& chain) {
  if (of.delta != nullptr) {
    chain.sink = AddSinkRows(of.rows, of.sink, of.sequence, of.b, of.head, of.delta, chain.sink);
  }
  if (of.slope_rows != nullptr) chain.slope = AddSlopeRows(of.slope_rows, of.sequence.sq, chain.slope);
}

void ParameterSums::EndSequence(int64_t b, int64_t head, Chain& chain, std::byte* workspace) const {
  chain.slopes += chain.slope;
  if (has_slopes_ && !slopes_shared_) {
    Own(workspace)[static_cast<size_t>((1 + b) * heads_ + head)] = static_cast<float>(chain.slope);
  }
  chain.slope = 0;
}

void ParameterSums::AddProgram(const BackwardProgram& program, const GradRows& rows, std::byte* program_workspace,
                               int64_t first_sequence, int64_t first_head, std::byte* workspace) const {
  if (!has_sums()) return;
  const tiling::AttentionProblem& problem = program.bound().forward.problem;
  const BackwardBuffers& buffers = program.buffers();
  const float* delta = buffers.RowDelta(program_workspace);
  const float* slopes = buffers.RowSlope(program_workspace);
  for (int64_t n = 0; n < problem.heads; ++n) {
    Chain& chain = Chains(workspace)[first_head + n];
    for (int64_t b = 0; b < std::ssize(problem.sequences); ++b) {
      const tiling::Sequence& sequence = problem.sequences[static_cast<size_t>(b)];
      const int64_t at = buffers.RowBase(b) + n * sequence.sq;
      Add({.rows = rows,
           .sequence = sequence,
           .b = b,
           .head = n,
           .sink = delta != nullptr ? rows.sink.At(0, n, 0) : 0,
           .delta = delta != nullptr ? delta + at : nullptr,
           .slope_rows = slopes != nullptr ? slopes + at : nullptr},
          chain);
      EndSequence(first_sequence + b, first_head + n, chain, workspace);
    }
  }
}

void ParameterSums::PutChains(std::byte* workspace) const {
  for (int64_t head = 0; head < heads_; ++head) {
    const Chain& chain = Chains(workspace)[head];
    Own(workspace)[head] = static_cast<float>(chain.sink);
    if (has_slopes_ && slopes_shared_) Own(workspace)[heads_ + head] = static_cast<float>(chain.slopes);
  }
}

Status ParameterSums::Gather(Transport& transport, std::byte* workspace) const {
  const std::span all(reinterpret_cast<const float*>(workspace + own_), ResultFloats());
  const size_t bytes = all.size_bytes();
  return transport.AllGather(std::as_bytes(all),
                             std::span(workspace + all_, bytes * static_cast<size_t>(transport.ranks())));
}

}  // namespace fa::ops
