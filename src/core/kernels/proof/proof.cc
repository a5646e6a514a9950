#include "core/kernels/proof/proof.h"

#include <algorithm>

#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels {
namespace proof {

std::vector<QueryKernels> OwnKernels(const KernelTable& level, const KernelTable& below) {
  std::vector<QueryKernels> own;
  const auto add = [&](const StripKernels* kernels, int count) {
    for (int i = 0; kernels != nullptr && i < count; ++i) own.push_back({level, kernels[i]});
  };
  add(level.strips, level.strip_count);
  add(level.row_state, level.strip_count);
  if (level.few != below.few) add(level.few, level.few_count);
  add(level.heads_in_place, 1);
  return own;
}

int64_t MostRows(std::span<const QueryKernels> own) {
  int64_t most = 0;
  for (const QueryKernels& query : own) most = std::max(most, query.kernels.width);
  return std::min(most, kMostRows);
}

}  // namespace proof

std::string Disproof(const KernelTable& level, const KernelTable& below) {
  for (const auto disproof :
       {proof::RowDisproof, proof::ProductDisproof, proof::AttentionDisproof, proof::PassDisproof}) {
    if (std::string wrong = disproof(level, below); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace fa::core::kernels
