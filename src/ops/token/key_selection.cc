// Reads lists of selected blocks of keys. Unless lists keep their order (KeyLists::sorted), the selected blocks are
// sorted, so that the order of a list changes no bits of the results. Blocks of a list that does not ascend are marked
// by one bit each, and the marks are read in order. If a block occurs twice, or there are too many blocks for marks,
// the entries are sorted instead. Sorting keeps equal blocks in the order of their slots.

#include "ops/token/key_selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <type_traits>

#include "core/integer.h"
#include "layout/bind_layout.h"
#include "layout/rows_view.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

// The number of entries that are checked at once. It is large enough that compilers use vector instructions.
constexpr int64_t kChunk = 16;

// For fewer entries a comparison sort is faster than clearing the counters of a radix sort.
constexpr int64_t kRadixEntries = 256;
constexpr int kRadixBits = 11;
constexpr int kSlotBits = 32;

int64_t BitWords(int64_t bits) { return core::CeilDiv(bits, 64); }
// Returns the most words of marks (64 blocks per word) that take less time to read than the entries take to sort.
int64_t MostWords(int64_t entries) { return 4 * entries; }
int64_t Blocks(int64_t keys, int64_t block_size) { return core::CeilDiv(keys, block_size); }

// Returns whether all entries of a chunk are blocks in [0, blocks).
template <typename Index>
bool AllWithin(const Index* list, int64_t blocks) {
  using Word = std::make_unsigned_t<Index>;
  bool outside = false;
  for (int64_t i = 0; i < kChunk; ++i) {
    outside |= static_cast<Word>(list[i]) >= static_cast<Word>(blocks);
  }
  return !outside;
}

// Copies every entry. So the value that is checked is the value that is used, even if another thread writes to the
// list.
template <typename Index>
void CopyOnce(const Index* list, int64_t size, Index* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = __atomic_load_n(list + i, __ATOMIC_RELAXED);
}

// Returns the index of the first entry that is neither -1 nor a block, among the entries that are read. Returns `slots`
// if there is none.
template <typename Index>
int64_t FirstInvalid(const Index* list, int64_t slots, int64_t blocks) {
  for (int64_t i = 0; i < slots; ++i) {
    if (i + kChunk <= slots && AllWithin(list + i, blocks)) {
      i += kChunk - 1;
      continue;
    }
    if (list[i] == -1) return slots;
    if (list[i] < 0 || list[i] >= blocks) return i;
  }
  return slots;
}

ErrorText ListEntry(const char* name, const SparseSequences& sequences, const SparseToken& token, int64_t slot) {
  const std::string batch = sequences.packed ? std::string() : At(token.sequence);
  return Arg(name, {}, batch + At(sequences.Row(token)) + At(0) + At(slot));
}

template <typename Index, typename KeysOf>
Status CheckLists(const char* name, const KeyListRows& of, const SparseSequences& sequences, const KeysOf& keys_of) {
  const KeyLists& lists = of.lists;
  for (size_t b = 0; b < sequences.list.size(); ++b) {
    const SparseSequence& sequence = sequences.list[b];
    const int64_t blocks = Blocks(keys_of(sequence), lists.block_size);
    for (int64_t t = 0; t < sequence.sq; ++t) {
      const SparseToken token{static_cast<int64_t>(b), t};
      const int64_t row = sequences.Row(token);
      const auto* list = reinterpret_cast<const Index*>(of.indices.At(token.sequence, 0, row));
      const int64_t slots = std::min(lists.Slots(sequence.Limit(sequences.mask, t)), of.Length(token.sequence, row));
      const int64_t slot = FirstInvalid(list, slots, blocks);
      if (slot == slots) continue;
      return Status::InvalidArgument(ListEntry(name, sequences, token, slot).Is(std::to_string(list[slot])) +
                                     ", want -1.." + std::to_string(blocks - 1));
    }
  }
  return Status::Ok();
}

}  // namespace

KeyLists::KeyLists(const TensorView& indices, bool packed, int64_t block_size_of_call)
    : rows{.dtype = indices.dtype}, block_size(block_size_of_call) {
  entries = indices.shape[indices.shape.rank() - 1];
  if (entries == 0) return;  // without entries, the tensor may have no address
  const Dims stride = layout::FilledStride(indices.shape, indices.stride);
  rows.batch = packed ? 0 : stride[0];
  rows.row = stride[packed ? 0 : 1];
}

int64_t KeyLists::Slots(int64_t limit) const { return whole ? entries : std::min(entries, Blocks(limit, block_size)); }

KeySelection::KeySelection(Carver& carver, const KeyLists& lists, int64_t max_sk)
    : lists_(lists),
      entries_(carver.Array<uint64_t>(lists.Slots(max_sk))),
      swap_(carver.Array<uint64_t>(lists.Slots(max_sk))),
      marks_(
          carver.Array<uint64_t>(std::min(BitWords(Blocks(max_sk, lists.block_size)), MostWords(lists.Slots(max_sk))))),
      slot_of_(carver.Array<int32_t>(std::min(Blocks(max_sk, lists.block_size), 64 * MostWords(lists.Slots(max_sk))))),
      keys_(carver.Array<int32_t>(lists.MaxKeys(max_sk))),
      slots_(carver.Array<int32_t>(lists.MaxKeys(max_sk))) {}

SelectedKeys KeySelection::Select(const void* list, int64_t limit, int64_t length) const {
  Order order;
  const int64_t count = lists_.rows.dtype == DType::kI64
                            ? Read(static_cast<const int64_t*>(list), limit, length, &order)
                            : Read(static_cast<const int32_t*>(list), limit, length, &order);
  if (order == Order::kNone && lists_.sorted) {
    order = SortDistinct(count, limit) ? Order::kStrict : Order::kNone;
    if (order == Order::kNone) Sort(count, limit);
  }
  if (order == Order::kStrict && lists_.block_size == 1) {
    for (int64_t i = 0; i < count; ++i) {
      keys_[i] = static_cast<int32_t>(entries_[i] >> kSlotBits);
      slots_[i] = static_cast<int32_t>(entries_[i]);
    }
    return {.keys = keys_, .slots = slots_, .count = count};
  }
  return Expand(count, limit);
}

/// Fills entries_ with the blocks that have a key below the limit. @return their number
template <typename Index>
int64_t KeySelection::Read(const Index* list, int64_t limit, int64_t length, Order* order) const {
  const int64_t slots = std::min(lists_.Slots(limit), length), blocks = Blocks(limit, lists_.block_size);
  int64_t count = 0, last = -1;
  bool descends = false, stays = false;
  const auto add = [&](int64_t block, int64_t slot) {
    descends |= block < last;
    stays |= block == last;
    last = block;
    entries_[count++] = static_cast<uint64_t>(block) << kSlotBits | static_cast<uint64_t>(slot);
  };
  Index chunk[kChunk];
  for (int64_t i = 0; i < slots;) {
    const int64_t size = std::min(kChunk, slots - i);
    CopyOnce(list + i, size, chunk);
    if (size == kChunk && AllWithin(chunk, blocks)) {
      for (const Index block : chunk) add(block, i++);
      continue;
    }
    const Index* const end = std::find(chunk, chunk + size, Index{-1});
    for (const Index* at = chunk; at != end; ++at, ++i) {
      if (*at >= 0 && *at < blocks) add(*at, i);
    }
    if (end != chunk + size) break;
  }
  *order = descends ? Order::kNone : stays ? Order::kAscending : Order::kStrict;
  return count;
}

/// Sorts the entries by block: sets one bit per block in marks_, then reads the bits in order. @return false, with the
/// entries unchanged, if a block occurs twice or the bits take more than MostWords(count) words.
bool KeySelection::SortDistinct(int64_t count, int64_t limit) const {
  const int64_t words = BitWords(Blocks(limit, lists_.block_size));
  if (words > MostWords(count)) return false;
  std::fill_n(marks_, words, 0);
  uint64_t twice = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t block = entries_[i] >> kSlotBits, mark = uint64_t{1} << (block % 64);
    twice |= marks_[block / 64] & mark;
    marks_[block / 64] |= mark;
    slot_of_[block] = static_cast<int32_t>(entries_[i]);
  }
  if (twice != 0) return false;
  uint64_t* to = entries_;
  for (int64_t word = 0; word < words; ++word) {
    for (uint64_t marks = marks_[word]; marks != 0; marks &= marks - 1) {
      const auto block = static_cast<uint64_t>(word * 64 + std::countr_zero(marks));
      *to++ = block << kSlotBits | static_cast<uint64_t>(slot_of_[block]);
    }
  }
  return true;
}

void KeySelection::Sort(int64_t count, int64_t limit) const {
  if (count < kRadixEntries) {
    std::sort(entries_, entries_ + count);
    return;
  }
  // A pass sorts by one digit of the block, beginning with the lowest digit. Every pass keeps the order of equal
  // digits, so equal blocks stay ordered by slot.
  constexpr uint64_t kMask = (1u << kRadixBits) - 1;
  const int bits = std::bit_width(static_cast<uint64_t>(Blocks(limit, lists_.block_size) - 1));
  uint64_t *from = entries_, *to = swap_;
  for (int shift = 0; shift < bits; shift += kRadixBits) {
    std::array<int32_t, kMask + 1> next{};
    const auto digit = [&](uint64_t entry) { return static_cast<size_t>(entry >> (kSlotBits + shift) & kMask); };
    for (int64_t i = 0; i < count; ++i) ++next[digit(from[i])];
    int32_t first = 0;
    for (int32_t& n : next) {
      const int32_t size = n;
      n = first;
      first += size;
    }
    for (int64_t i = 0; i < count; ++i) to[next[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != entries_) std::copy_n(from, count, entries_);
}

/// Turns blocks into keys. A block that occurs m times in the list gives each of its keys m times.
SelectedKeys KeySelection::Expand(int64_t count, int64_t limit) const {
  SelectedKeys selected{.keys = keys_, .slots = slots_};
  for (int64_t i = 0; i < count;) {
    const auto block = static_cast<int64_t>(entries_[i] >> kSlotBits);
    int64_t same = i + 1;
    while (same < count && static_cast<int64_t>(entries_[same] >> kSlotBits) == block) ++same;
    if (same - i > 1) selected.distinct = false;
    const int64_t begin = block * lists_.block_size, end = std::min(begin + lists_.block_size, limit);
    for (int64_t key = begin; key < end; ++key) {
      for (int64_t entry = i; entry < same; ++entry) {
        keys_[selected.count] = static_cast<int32_t>(key);
        slots_[selected.count++] = static_cast<int32_t>(entries_[entry]);
      }
    }
    i = same;
  }
  return selected;
}

Status CheckKeyLists(const KeyLists& lists, const void* indices, const SparseSequences& sequences) {
  const KeyListRows rows{.lists = lists, .indices = {indices, lists.rows}};
  return CheckKeyLists("sparse_indices", rows, sequences, [](const SparseSequence& of) { return of.sk; });
}

Status CheckKeyLists(const char* name, const KeyListRows& rows, const SparseSequences& sequences,
                     int64_t (*keys)(const SparseSequence&)) {
  return rows.lists.rows.dtype == DType::kI64 ? CheckLists<int64_t>(name, rows, sequences, keys)
                                              : CheckLists<int32_t>(name, rows, sequences, keys);
}

}  // namespace fa::ops
