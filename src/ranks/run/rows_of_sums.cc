#include "ranks/run/rows_of_sums.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "ranks/plan/sequence_part.h"
#include "ranks/rows/unit_messages.h"

namespace fa::ops {
namespace {

constexpr int kTag = kUnitTags;

}  // namespace

RowsOfSums::RowsOfSums(const BoundGradRanks& bound, const tiling::RankPlan& plan, const ParameterSums& sums,
                       tiling::WorkspacePlan& workspace)
    : bound_(&bound), has_sink_(sums.has_sink()), has_slopes_(sums.has_slopes()) {
  if (!sums.has_sums()) return;
  const tiling::RankCall& call = bound.forward.call;
  const std::vector<tiling::Sequence>& sequences = call.problem.sequences;
  for (int64_t s = 0; s < std::ssize(sequences); ++s) {
    const auto first = std::ssize(steps_);
    for (const tiling::RankPart& part : PartsOfAllRanks(sequences, s, plan.q)) {
      steps_.push_back({.rank = part.rank, .sequence = s, .rows = part.placed});
    }
    if (std::ssize(steps_) > first) steps_.back().ends = true;
    last_rank_.push_back(std::ssize(steps_) > first ? steps_.back().rank : 0);
  }
  for (Step& step : steps_) {
    if (step.rank != bound.forward.rank) continue;
    step.kept = own_rows_;
    own_rows_ += step.rows.rows.size();
  }
  const auto book = [&](const char* name, bool wanted) {
    return workspace.Book(name, wanted ? static_cast<size_t>(own_rows_) * sizeof(float) : 0, call.problem.heads);
  };
  delta_ = book("delta of own rows", has_sink_);
  slope_ = book("slope gradient of own rows", has_slopes_);
}

void RowsOfSums::Keep(const GradChain& chain, std::byte* chain_workspace, int64_t first_sequence,
                      tiling::Interval heads_kv, std::byte* workspace) const {
  const tiling::AttentionProblem& problem = chain.bound().forward.problem;
  const float* delta = chain.buffers().RowDelta(chain_workspace);
  const float* slope = chain.buffers().RowSlope(chain_workspace);
  if (delta == nullptr && slope == nullptr) return;
  // In `steps_`, this rank's rows of the unit's sequences stand in the same order as the parts of the unit.
  auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& of) {
    return of.rank == bound_->forward.rank && of.sequence >= first_sequence;
  });
  for (size_t part = 0; part < problem.sequences.size(); ++part, ++step) {
    while (step->rank != bound_->forward.rank) ++step;
    const int64_t rows = problem.sequences[part].sq;
    const int64_t base = chain.buffers().RowBase(static_cast<int64_t>(part));
    for (int64_t head = 0; head < problem.heads; ++head) {
      const int64_t to = (heads_kv.begin * problem.group() + head) * own_rows_ + step->kept;
      const auto keep = [&](const float* from, size_t at) {
        if (from == nullptr) return;
        std::memcpy(Kept(at, workspace) + to, from + base + head * rows, sizeof(float) * static_cast<size_t>(rows));
      };
      keep(delta, delta_);
      keep(slope, slope_);
    }
  }
}

void RowsOfSums::Spoil(std::byte* workspace) const {
  if (bound_ == nullptr) return;
  const int64_t floats = own_rows_ * bound_->forward.whole.problem.heads;
  constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
  if (has_sink_) std::fill_n(Kept(delta_, workspace), floats, kNothing);
  if (has_slopes_) std::fill_n(Kept(slope_, workspace), floats, kNothing);
}

void RowsOfSums::AddRows(const Step& step, const AttentionGradArgs& args, const ParameterSums& sums,
                         std::byte* workspace) const {
  const BoundAttention& whole = bound_->forward.whole;
  const GradRows rows{.softmax_max = {args.softmax_max.data, whole.softmax_max},
                      .softmax_sum = {args.softmax_sum.data, whole.softmax_sum}};
  tiling::Sequence sequence = whole.problem.sequences[static_cast<size_t>(step.sequence)];
  sequence.sq = step.rows.rows.size();
  sequence.q_offset = step.rows.at;
  for (int64_t head = 0; head < whole.problem.heads; ++head) {
    const int64_t at = head * own_rows_ + step.kept;
    ParameterSums::Add({.rows = rows,
                        .sequence = sequence,
                        .b = bound_->forward.call.packed ? 0 : step.sequence,
                        .head = head,
                        .sink = has_sink_ ? static_cast<const float*>(args.sink.data)[head] : 0,
                        .delta = has_sink_ ? Kept(delta_, workspace) + at : nullptr,
                        .slope_rows = has_slopes_ ? Kept(slope_, workspace) + at : nullptr},
                       sums.Chains(workspace)[head]);
  }
}

Status RowsOfSums::AddAndShare(Transport& transport, const AttentionGradArgs& args, const ParameterSums& sums,
                               std::byte* workspace) const {
  const int own = bound_->forward.rank;
  const std::span chains(
      workspace + static_cast<size_t>(reinterpret_cast<std::byte*>(sums.Chains(workspace)) - workspace),
      sums.chain_bytes());
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    if (step.rank != own) continue;
    Transport::Request request = 0;
    if (s > 0 && steps_[s - 1].rank != own) {
      FA_RETURN_IF_ERROR(transport.Receive(steps_[s - 1].rank, kTag, chains, &request));
      FA_RETURN_IF_ERROR(transport.Wait(request));
    }
    AddRows(step, args, sums, workspace);
    for (int64_t head = 0; step.ends && head < bound_->forward.whole.problem.heads; ++head) {
      sums.EndSequence(step.sequence, head, sums.Chains(workspace)[head], workspace);
    }
    if (s + 1 == steps_.size() || steps_[s + 1].rank == own) continue;
    FA_RETURN_IF_ERROR(transport.Send(steps_[s + 1].rank, kTag, chains, &request));
    FA_RETURN_IF_ERROR(transport.Wait(request));
  }
  const int last = steps_.empty() ? 0 : steps_.back().rank;
  const auto of_sequence = [&](int64_t b, int64_t /*head*/) { return last_rank_[static_cast<size_t>(b)]; };
  return sums.Share(
      transport, args, workspace, [&](int64_t /*head*/) { return last; }, of_sequence);
}

}  // namespace fa::ops
