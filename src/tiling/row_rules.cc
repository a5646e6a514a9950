#include "tiling/row_rules.h"

#include <algorithm>
#include <string>

#include "tiling/row_interval.h"

namespace fa::tiling {
namespace {

std::string TextOf(const RowRule& rule) {
  if (rule.listed != nullptr) return "listed rows";
  const bool no_pair = rule.sq == 0 || rule.sk == 0;
  if (no_pair || rule.KeysOfEveryRow({0, rule.sq}) == Interval{0, rule.sk}) return "no rule";
  if (rule.prefix > 0) return "prefix";
  const bool all_back = rule.lo <= 1 - rule.sq, all_ahead = rule.hi >= rule.sk - 1;
  if (all_back && rule.hi == rule.sk - rule.sq) return "causal";
  if (all_back && rule.hi == 0) return "causal from the first row";
  const auto key = [](int64_t ahead) { return std::string(ahead < 0 ? "i" : "i+") + std::to_string(ahead); };
  if (all_back) return "row i: keys to " + key(rule.hi);
  if (all_ahead) return "row i: keys from " + key(rule.lo);
  return "row i: keys " + key(rule.lo) + " to " + key(rule.hi);
}

}  // namespace

void SetRowRules(const Mask& mask, std::vector<Sequence>& sequences) {
  const auto has_rows = [](const Sequence& sequence) { return sequence.sq > 0; };
  const auto first = std::find_if(sequences.begin(), sequences.end(), has_rows);
  const auto last = std::find_if(sequences.rbegin(), sequences.rend(), has_rows);
  for (size_t b = 0; b < sequences.size(); ++b) {
    Sequence& sequence = sequences[b];
    sequence.rule =
        MakeRowRule(mask, static_cast<int64_t>(b), sequence.sq, sequence.sk,
                    first != sequences.end() && &sequence == &*first, last != sequences.rend() && &sequence == &*last);
  }
}

std::string MaskText(const std::vector<Sequence>& sequences) {
  std::string text;
  for (const Sequence& sequence : sequences) {
    if (sequence.sq == 0) continue;
    const std::string own = TextOf(sequence.rule);
    if (!text.empty() && own != text) return "rules that differ";
    text = own;
  }
  return text.empty() ? "no rule" : text;
}

}  // namespace fa::tiling
