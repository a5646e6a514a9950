#include "tiling/row_rules.h"

#include <algorithm>

#include "tiling/row_interval.h"

namespace fa::tiling {

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

}  // namespace fa::tiling
