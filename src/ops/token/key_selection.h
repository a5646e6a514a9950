#ifndef FA_OPS_KEY_SELECTION_H_
#define FA_OPS_KEY_SELECTION_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "fa/status.h"
#include "fa/tensor.h"
#include "layout/rows.h"
#include "layout/rows_view.h"
#include "ops/plan/carver.h"
#include "ops/token/sparse_sequences.h"

namespace fa::ops {

/// The layout of the lists of keys, one list per query token.
struct KeyLists {
  KeyLists() = default;
  /// Makes the layout of checked sparse_indices [B, S1, 1, K] or [T, 1, K].
  KeyLists(const TensorView& indices, bool packed, int64_t block_size_of_call);

  /// The list of token s of batch element b is the row at (b, 0, s); i32 or i64.
  layout::Rows rows{.dtype = DType::kI32};
  int64_t entries = 0;     ///< length of a list
  int64_t block_size = 1;  ///< number of keys per entry
  /// Whether a list is read to its end. Otherwise no more entries are read than there are blocks that the token may
  /// select.
  bool whole = false;
  bool sorted = true;  ///< whether the selected keys are sorted; otherwise they keep the order of the list

  /// Returns the number of entries of a list that are read if keys below `limit` may be selected.
  [[nodiscard]] int64_t Slots(int64_t limit) const;
  /// Returns the most keys that a token of a sequence of sk keys may select.
  [[nodiscard]] int64_t MaxKeys(int64_t sk) const { return Slots(sk) * block_size; }
};

/// The lists of a call during a run.
struct KeyListRows {
  KeyLists lists = {};
  layout::RowsView indices = {};  ///< the list of token s of batch element b is the row at (b, 0, s)
  layout::RowsView lengths = {};  ///< i32 at (b, 0, s): only that many entries are read; null data: all entries

  /// Returns the number of entries of a list that may be read.
  [[nodiscard]] int64_t Length(int64_t b, int64_t s) const {
    if (lengths.data == nullptr) return lists.entries;
    const auto* length = reinterpret_cast<const int32_t*>(lengths.At(b, 0, s));
    return std::clamp<int64_t>(__atomic_load_n(length, __ATOMIC_RELAXED), 0, lists.entries);
  }
};

/// The keys that one query token selects.
struct SelectedKeys {
  /// Keys in ascending order, unless the lists keep their order. A key that is selected twice is listed twice.
  const int32_t* keys = nullptr;
  const int32_t* slots = nullptr;  ///< index of the list's entry for each key; ascending for equal keys
  int64_t count = 0;
  bool distinct = true;  ///< whether no key is listed twice
  int64_t first = 0;     ///< with keys in two tensors: number of selected keys that lie in the first tensor

  /// Returns the selected keys at positions [begin, end), without the positions from `count` on.
  [[nodiscard]] std::span<const int32_t> span(int64_t begin, int64_t end) const {
    assert(begin >= 0 && begin <= end);
    begin = std::min(begin, count);
    return {keys + begin, static_cast<size_t>(std::min(end, count) - begin)};
  }
};

/// Reads lists of keys, with the memory of one worker.
class KeySelection {
 public:
  /// Prepares to read lists for sequences of at most max_sk keys. A carver of null memory only counts the bytes.
  KeySelection(Carver& carver, const KeyLists& lists, int64_t max_sk);

  /// Returns the keys below `limit` that a list selects, up to its first -1. Entries that name no block below the limit
  /// are skipped. The result is valid until the next call. @param length  the most entries that are read
  [[nodiscard]] SelectedKeys Select(const void* list, int64_t limit,
                                    int64_t length = std::numeric_limits<int64_t>::max()) const;

 private:
  enum class Order : uint8_t { kNone, kAscending, kStrict };

  template <typename Index>
  [[nodiscard]] int64_t Read(const Index* list, int64_t limit, int64_t length, Order* order) const;
  [[nodiscard]] bool SortDistinct(int64_t count, int64_t limit) const;
  void Sort(int64_t count, int64_t limit) const;
  [[nodiscard]] SelectedKeys Expand(int64_t count, int64_t limit) const;

  KeyLists lists_;
  uint64_t *entries_, *swap_;  // entries in the form block << 32 | slot
  uint64_t* marks_;            // one bit per block
  int32_t* slot_of_;           // slot of each marked block
  int32_t *keys_, *slots_;
};

/// Checks every entry that Select would read in the lists at `indices`. @return kInvalidArgument with the first entry
/// that is neither a block of its sequence nor -1: "sparse_indices[0][3][0][17]=9000, want -1..8191"
[[nodiscard]] Status CheckKeyLists(const KeyLists& lists, const void* indices, const SparseSequences& sequences);

/// Works like the function above, for lists that select keys of one of two tensors.
/// @param name  the name of the lists in errors; @param keys  returns a sequence's number of keys in that tensor
[[nodiscard]] Status CheckKeyLists(const char* name, const KeyListRows& rows, const SparseSequences& sequences,
                                   int64_t (*keys)(const SparseSequence&));

}  // namespace fa::ops

#endif  // FA_OPS_KEY_SELECTION_H_
