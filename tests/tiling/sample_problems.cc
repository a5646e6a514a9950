#include "tests/tiling/sample_problems.h"

#include <algorithm>
#include <stdexcept>

namespace fa::tiling {
namespace {

int64_t Pick(std::mt19937_64& random, int64_t least, int64_t greatest) {
  return std::uniform_int_distribution<int64_t>(least, greatest)(random);
}

Mask RandomMask(std::mt19937_64& random, size_t sequences) {
  const int64_t pre = Pick(random, -40, 300), next = Pick(random, -40, 300);
  std::vector<int64_t> prefix(sequences);
  for (int64_t& length : prefix) length = Pick(random, 0, 200);
  const int64_t mode = Pick(random, 0, 8);
  return Mask::FromSparseMode(mode, pre, next, std::move(prefix), true).value();
}

}  // namespace

RowRule RandomListedRule(std::mt19937_64& random, int64_t sq, int64_t sk) {
  const int64_t step = Pick(random, 0, 3);
  std::vector<int64_t> begins, ends;
  int64_t begin = Pick(random, -1, 2), end = begin;
  for (int64_t i = 0; i < sq; ++i) {
    begin += Pick(random, 0, step);
    end = std::max(begin, end) + Pick(random, 0, step);
    const bool nothing = Pick(random, 0, 6) == 0;
    if (nothing) begin = end;
    begins.push_back(begin);
    ends.push_back(nothing ? begin - Pick(random, 0, 2) : end);
  }
  int64_t wrong = 0;
  RowRule rule = ListedRowRule(begins, ends, sk, &wrong);
  if (wrong != -1) throw std::logic_error("the rows do not go forward");
  return rule;
}

AttentionProblem MakeProblem(const Sizes& sizes) {
  AttentionProblem problem{.heads = sizes.heads,
                           .heads_kv = sizes.heads_kv,
                           .d = sizes.d,
                           .d_rope = sizes.d_rope,
                           .dv = sizes.dv,
                           .k_in_place = sizes.dense,
                           .v_in_place = sizes.dense,
                           .sequences = {}};
  const auto has_rows = [](const auto& length) { return length.first > 0; };
  const auto& lengths = sizes.lengths;
  const auto first = std::find_if(lengths.begin(), lengths.end(), has_rows) - lengths.begin();
  const auto last = lengths.rend() - std::find_if(lengths.rbegin(), lengths.rend(), has_rows) - 1;
  int64_t q_offset = 0, k_offset = 0;
  for (std::ptrdiff_t b = 0; b < std::ssize(lengths); ++b) {
    const auto [sq, sk] = lengths[static_cast<size_t>(b)];
    problem.sequences.push_back(
        {sq, sk, q_offset, k_offset, MakeRowRule(sizes.mask, b, sq, sk, b == first, b == last)});
    q_offset += sq;
    k_offset += sk;
  }
  return problem;
}

AttentionProblem RandomProblem(std::mt19937_64& random) {
  Sizes sizes;
  const int64_t sequences = Pick(random, 1, 6);
  const int64_t greatest = Pick(random, 0, 2) == 0 ? 40 : 400;
  for (int64_t b = 0; b < sequences; ++b) {
    const auto length = [&] { return Pick(random, 0, 5) == 0 ? 0 : Pick(random, 1, greatest); };
    const int64_t sq = length(), sk = length();
    sizes.lengths.emplace_back(sq, sk);
  }
  const int64_t head_sizes[] = {8, 40, 64, 128, 192, 256, 1024};
  sizes.heads_kv = Pick(random, 1, 5);
  sizes.heads = sizes.heads_kv * (Pick(random, 0, 1) == 0 ? 1 : Pick(random, 2, 19));
  sizes.d = head_sizes[Pick(random, 0, 6)];
  sizes.dv = head_sizes[Pick(random, 0, 6)];
  sizes.mask = RandomMask(random, sizes.lengths.size());
  sizes.dense = Pick(random, 0, 2) == 0;
  AttentionProblem problem = MakeProblem(sizes);
  if (Pick(random, 0, 4) == 0) {
    for (Sequence& sequence : problem.sequences) sequence.rule = RandomListedRule(random, sequence.sq, sequence.sk);
  }
  return problem;
}

Machine MakeMachine(int workers, int nodes) { return {.isa = Isa::kAvx512, .workers = workers, .nodes = nodes}; }

std::string Text(const AttentionProblem& problem) {
  std::string text = "heads " + std::to_string(problem.heads) + "/" + std::to_string(problem.heads_kv) + " d " +
                     std::to_string(problem.d) + "," + std::to_string(problem.dv) +
                     (problem.k_in_place ? " dense" : " packs");
  for (const Sequence& s : problem.sequences) {
    text += " (" + std::to_string(s.sq) + "," + std::to_string(s.sk) + " lo " + std::to_string(s.rule.lo) + " hi " +
            std::to_string(s.rule.hi) + " prefix " + std::to_string(s.rule.prefix) +
            (s.rule.listed != nullptr ? " listed)" : ")");
  }
  return text;
}

}  // namespace fa::tiling
