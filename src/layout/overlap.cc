// This file decides whether two strided views share a byte. Element x of a lies at a.data + sum(stride_i x_i), so the
// question is whether
//   lo <= sum(step_k x_k) <= hi,  0 <= x_k <= count_k
// has a solution. The steps are the strides of a and of b. The indices of b count from its last element back, so that
// its strides enter with a positive sign. [lo, hi] are the distances at which two elements share a byte.
//
// The search takes the largest step first. The smaller steps together reach only a limited distance, so the variable of
// the largest step has few possible values. There are one or two values if the views are nested as layouts are. Before
// the search, a step that continues the range of a smaller step is merged with it, so dense dimensions cost nothing.
// For interleaved views (packed QKV), the greatest common divisor of the remaining steps shows at once that they share
// no byte.
#include "layout/overlap.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "fa/overlap.h"
#include "layout/bind_layout.h"

namespace fa::layout {
namespace {

// Sums of two spans, and distances of two addresses, may exceed 64 bits.
__extension__ using Wide = __int128;

struct Term {
  int64_t step = 0;
  Wide count = 0;  // the variable runs over 0..count
};

// The search gives up after it has tried this many values. Nested layouts need 2 to 4 values in all, and at most two
// per step, of which there are 17. With this limit, even a view that is meant to be slow costs less than a millisecond.
constexpr int kSearchSteps = 1 << 16;

// Puts the largest step first. There are only a few terms, so insertion sort suffices.
void SortByStep(Term* terms, int size) {
  for (int i = 1; i < size; ++i) {
    for (int j = i; j > 0 && terms[j].step > terms[j - 1].step; --j) std::swap(terms[j], terms[j - 1]);
  }
}

class BoundedSum {
 public:
  void Add(int64_t step, Wide count) {
    if (step > 0 && count > 0) terms_[static_cast<size_t>(size_++)] = {step, count};
  }

  // Returns whether sum(step_k x_k) can be in [lo, hi]. If the search gives up, returns true.
  bool Reaches(Wide lo, Wide hi) {
    Merge();
    Wide reach = 0;
    int64_t divisor = 0;
    for (int k = size_ - 1; k >= 0; --k) {
      const auto at = static_cast<size_t>(k);
      reach += terms_[at].step * terms_[at].count;
      divisor = std::gcd(divisor, terms_[at].step);
      reach_[at] = reach;
      divisor_[at] = divisor;
    }
    steps_left_ = kSearchSteps;
    return Search(0, lo, hi);
  }

 private:
  // Puts the largest step first, and merges steps. Let a step be m times the next smaller step. If m is at most the
  // count of that smaller step plus 1, the two terms become one, with the smaller step and a larger count.
  void Merge() {
    SortByStep(terms_.data(), size_);
    for (int k = size_ - 2; k >= 0; --k) {
      Term& large = terms_[static_cast<size_t>(k)];
      Term& small = terms_[static_cast<size_t>(k + 1)];
      if (large.step % small.step != 0 || large.step / small.step > small.count + 1) continue;
      small.count += large.step / small.step * large.count;
      std::copy(terms_.begin() + k + 1, terms_.begin() + size_, terms_.begin() + k);
      --size_;
    }
  }

  bool Search(int k, Wide lo, Wide hi) {
    if (hi < 0) return false;
    if (lo <= 0) return true;  // 0 lies in the interval: all remaining variables may be 0
    if (k == size_) return false;
    const auto at = static_cast<size_t>(k);
    if (lo > reach_[at] || hi / divisor_[at] * divisor_[at] < lo) return false;
    const Term term = terms_[at];
    const Wide rest = k + 1 < size_ ? reach_[at + 1] : 0;
    const Wide first = lo > rest ? (lo - rest + term.step - 1) / term.step : 0;
    const Wide last = std::min(term.count, hi / term.step);
    for (Wide x = last; x >= first; --x) {
      if (--steps_left_ < 0) return true;
      if (Search(k + 1, lo - x * term.step, hi - x * term.step)) return true;
    }
    return false;
  }

  std::array<Term, 2 * Dims::kMaxRank + 1> terms_{};
  std::array<Wide, 2 * Dims::kMaxRank + 1> reach_{};
  std::array<int64_t, 2 * Dims::kMaxRank + 1> divisor_{};
  int size_ = 0;
  int steps_left_ = 0;
};

bool Empty(const TensorView& tensor) {
  return std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size == 0; });
}

}  // namespace

bool OverlapsItself(const TensorView& tensor) {
  if (Empty(tensor)) return false;
  const auto bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
  std::array<Term, Dims::kMaxRank> dims{};
  int rank = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (tensor.shape[i] < 2) continue;
    if (tensor.stride[i] == 0) return true;
    dims[static_cast<size_t>(rank++)] = {tensor.stride[i] * bytes, tensor.shape[i] - 1};
  }
  SortByStep(dims.data(), rank);
  Wide covered = bytes;
  bool nested = true;
  for (int i = rank - 1; i >= 0; --i) {
    const Term& dim = dims[static_cast<size_t>(i)];
    nested = nested && dim.step >= covered;
    covered += dim.step * dim.count;
  }
  if (nested) return false;

  // Two elements share a byte if the indices differ by some d != 0 and |sum_j step_j d_j| < bytes. The loop takes each
  // dimension k in turn as the first one with d_k != 0. By symmetry d_k = 1 + t with t >= 0. The variables of a
  // BoundedSum start at 0, so every later d_j, which may be negative, is shifted.
  for (int k = 0; k < rank; ++k) {
    const Term& lead = dims[static_cast<size_t>(k)];
    BoundedSum sum;
    sum.Add(lead.step, lead.count - 1);
    Wide shift = -static_cast<Wide>(lead.step);
    for (int j = k + 1; j < rank; ++j) {
      const Term& dim = dims[static_cast<size_t>(j)];
      sum.Add(dim.step, 2 * dim.count);
      shift += dim.step * dim.count;
    }
    if (sum.Reaches(shift - (bytes - 1), shift + (bytes - 1))) return true;
  }
  return false;
}

bool Overlap(const TensorView& a, const TensorView& b) {
  if (Empty(a) || Empty(b)) return false;
  const auto a_bytes = static_cast<int64_t>(SizeOf(a.dtype));
  const auto b_bytes = static_cast<int64_t>(SizeOf(b.dtype));
  // Two elements share a byte if the address in a minus the address in b lies in (-a_bytes, b_bytes). The indices of b
  // count back from its last element.
  BoundedSum sum;
  Wide distance =
      static_cast<Wide>(reinterpret_cast<uintptr_t>(b.data)) - static_cast<Wide>(reinterpret_cast<uintptr_t>(a.data));
  // The stride of a dimension of one element does not matter.
  for (int i = 0; i < a.shape.rank(); ++i) {
    if (a.shape[i] > 1) sum.Add(a.stride[i] * a_bytes, a.shape[i] - 1);
  }
  for (int i = 0; i < b.shape.rank(); ++i) {
    if (b.shape[i] < 2) continue;
    sum.Add(b.stride[i] * b_bytes, b.shape[i] - 1);
    distance += static_cast<Wide>(b.stride[i]) * b_bytes * (b.shape[i] - 1);
  }
  return sum.Reaches(distance - (a_bytes - 1), distance + (b_bytes - 1));
}

}  // namespace fa::layout

namespace fa {
namespace {

TensorView Filled(const TensorView& tensor) {
  return {tensor.data, tensor.dtype, tensor.shape, layout::FilledStride(tensor.shape, tensor.stride)};
}

// Returns the address of a view's first byte and the address after its last byte. Both addresses are equal if the view
// has no bytes.
std::pair<uintptr_t, uintptr_t> RangeOf(const TensorView& tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  return {begin, begin + static_cast<uintptr_t>(tensor.data == nullptr ? 0 : layout::SpanBytes(tensor))};
}

}  // namespace

bool Overlap(const TensorView& a, const TensorView& b) {
  const auto [a_begin, a_end] = RangeOf(a);
  const auto [b_begin, b_end] = RangeOf(b);
  if (a_begin == a_end || b_begin == b_end || a_end <= b_begin || b_end <= a_begin) return false;
  return layout::Overlap(Filled(a), Filled(b));
}

bool OverlapsItself(const TensorView& tensor) { return !tensor.stride.empty() && layout::OverlapsItself(tensor); }

}  // namespace fa
