#include "ops/token/token_keys.h"

#include <algorithm>

namespace fa::ops {

using tiling::Interval;

TokenKeys::TokenKeys(Carver& carver, const tiling::SparseProblem& sparse, const TokenLists& lists)
    : sparse_(sparse),
      first_(carver, lists.first.lists, sparse.shared != nullptr ? sparse.shared->most_first : sparse.sequences.max_sk),
      second_(carver, lists.second.lists, sparse.shared != nullptr ? sparse.shared->most_second : 0),
      keys_(carver.Array<int32_t>(sparse.shared != nullptr ? sparse.shared->MostKeys() : 0)),
      slots_(carver.Array<int32_t>(sparse.shared != nullptr ? sparse.shared->MostKeys() : 0)) {}

SelectedKeys TokenKeys::Select(const SparseToken& token, const TokenLists& lists) const {
  const SparseSequence& sequence = sparse_.sequences.list[static_cast<size_t>(token.sequence)];
  const int64_t row = sparse_.sequences.Row(token);
  const tiling::SharedKeys* shared = sparse_.shared;
  if (shared == nullptr) {
    return first_.Select(lists.first.indices.At(token.sequence, 0, row), sparse_.sequences.Limit(token));
  }
  SelectedKeys all{.keys = keys_, .slots = slots_};
  const auto add = [&](const KeySelection& selection, bool listed, const KeyListRows& of, Interval kept, int64_t base) {
    int32_t *keys = keys_ + all.count, *slots = slots_ + all.count;
    if (!listed) {
      for (int64_t key = kept.begin; key < kept.end; ++key) {
        *keys++ = static_cast<int32_t>(base + key);
        *slots++ = static_cast<int32_t>(key);
      }
      all.count += kept.size();
      return;
    }
    const SelectedKeys part =
        selection.Select(of.indices.At(token.sequence, 0, row), kept.end, of.Length(token.sequence, row));
    for (int64_t i = 0; i < part.count; ++i) keys[i] = static_cast<int32_t>(base + part.keys[i]);
    std::copy_n(part.slots, part.count, slots);
    all.count += part.count;
    all.distinct = all.distinct && part.distinct;
  };
  add(first_, shared->first_entries >= 0, lists.first, shared->First(sequence, token.row), 0);
  all.first = all.count;
  add(second_, shared->second_entries >= 0, lists.second, {0, shared->SecondEnd(sequence, token.row)},
      sequence.first());
  return all;
}

int64_t TokenKeys::MostKeys(const tiling::SparseProblem& sparse, const TokenLists& lists) {
  return sparse.shared != nullptr ? sparse.shared->MostKeys() : lists.first.lists.MaxKeys(sparse.sequences.max_sk);
}

}  // namespace fa::ops
