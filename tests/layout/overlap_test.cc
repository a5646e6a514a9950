#include "layout/overlap.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/each_case.h"

namespace fa::layout {
namespace {

using test::Axis;
using test::ForEachCase;
using test::FromTo;

// Returns an address that is only compared; no memory is read.
const std::byte* Address(int64_t bytes) { return reinterpret_cast<const std::byte*>(0x10000000 + bytes); }

TensorView View(int64_t byte_offset, DType dtype, Dims shape, Dims stride) {
  return {Address(byte_offset), dtype, shape, stride};
}

// Calls visit(byte offset of the element) for every element.
template <typename Visit>
void ForEachElement(const TensorView& tensor, Visit visit) {
  std::vector<int64_t> index(static_cast<size_t>(tensor.shape.rank()), 0);
  for (const int64_t size : tensor.shape) {
    if (size == 0) return;
  }
  while (true) {
    int64_t offset = 0;
    for (int i = 0; i < tensor.shape.rank(); ++i) offset += index[static_cast<size_t>(i)] * tensor.stride[i];
    visit(static_cast<const std::byte*>(tensor.data) + offset * static_cast<int64_t>(SizeOf(tensor.dtype)));
    int i = tensor.shape.rank() - 1;
    for (; i >= 0; --i) {
      if (++index[static_cast<size_t>(i)] < tensor.shape[i]) break;
      index[static_cast<size_t>(i)] = 0;
    }
    if (i < 0) return;
  }
}

std::multiset<const std::byte*> Bytes(const TensorView& tensor) {
  std::multiset<const std::byte*> bytes;
  ForEachElement(tensor, [&](const std::byte* at) {
    for (size_t i = 0; i < SizeOf(tensor.dtype); ++i) bytes.insert(at + i);
  });
  return bytes;
}

bool EnumeratedOverlap(const TensorView& a, const TensorView& b) {
  const auto bytes = Bytes(a);
  for (const std::byte* at : Bytes(b)) {
    if (bytes.count(at) > 0) return true;
  }
  return false;
}

bool EnumeratedSelfOverlap(const TensorView& a) {
  const auto bytes = Bytes(a);
  return std::set<const std::byte*>(bytes.begin(), bytes.end()).size() != bytes.size();
}

std::string Text(const TensorView& tensor) {
  std::string text = "at " + std::to_string(reinterpret_cast<uintptr_t>(tensor.data)) + " " + Name(tensor.dtype);
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    text += " " + std::to_string(tensor.shape[i]) + "*" + std::to_string(tensor.stride[i]);
  }
  return text;
}

class RandomViews {
 public:
  TensorView Next(int max_rank, int64_t max_offset, int64_t max_stride) {
    static constexpr DType kTypes[] = {DType::kU8, DType::kF16, DType::kF32, DType::kI64};
    TensorView view = View(Draw(max_offset), kTypes[Draw(3)], {}, {});
    const auto rank = static_cast<int>(Draw(max_rank));
    for (int i = 0; i < rank; ++i) {
      view.shape.push_back(Draw(20) == 0 ? 0 : 1 + Draw(4));
      view.stride.push_back(Draw(max_stride));
    }
    return view;
  }

 private:
  int64_t Draw(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(engine_); }
  std::mt19937_64 engine_{7};
};

TEST(Overlap, AgreesWithEnumerationOnRandomStridedViews) {
  RandomViews views;
  int yes = 0;
  int interleaved = 0;  // counts pairs whose ranges of addresses intersect although they share no element
  for (int i = 0; i < 10000; ++i) {
    const TensorView a = views.Next(4, 60, 40);
    const TensorView b = views.Next(4, 60, 40);
    const bool want = EnumeratedOverlap(a, b);
    ASSERT_EQ(Overlap(a, b), want) << Text(a) << " / " << Text(b);
    ASSERT_EQ(Overlap(b, a), want) << Text(a) << " / " << Text(b);
    yes += want;
    if (!want && !Bytes(a).empty() && !Bytes(b).empty()) {
      const auto bytes_a = Bytes(a);
      const auto bytes_b = Bytes(b);
      interleaved += *bytes_a.begin() <= *bytes_b.rbegin() && *bytes_b.begin() <= *bytes_a.rbegin();
    }
  }
  EXPECT_GT(yes, 500);
  EXPECT_GT(interleaved, 500);
}

TEST(Overlap, SelfOverlapAgreesWithEnumerationOnRandomStridedViews) {
  RandomViews views;
  int yes = 0;
  int no = 0;
  for (int i = 0; i < 10000; ++i) {
    const TensorView a = views.Next(4, 0, 60);
    const bool want = EnumeratedSelfOverlap(a);
    ASSERT_EQ(OverlapsItself(a), want) << Text(a);
    ++(want ? yes : no);
  }
  EXPECT_GT(yes, 500);
  EXPECT_GT(no, 500);
}

TEST(Overlap, AgreesWithEnumerationOnAllTinyViews) {
  const auto check = [&](int64_t shape_a, int64_t stride_a, int64_t shape_b, int64_t stride_b, int64_t offset) {
    const TensorView a = View(0, DType::kF16, {shape_a, 2}, {stride_a, 3});
    const TensorView b = View(offset, DType::kF16, {shape_b}, {stride_b});
    ASSERT_EQ(Overlap(a, b), EnumeratedOverlap(a, b)) << Text(a) << " / " << Text(b);
  };
  ForEachCase(check, Axis{"shape_a", FromTo(1, 4)}, Axis{"stride_a", FromTo(0, 6)}, Axis{"shape_b", FromTo(1, 4)},
              Axis{"stride_b", FromTo(0, 6)}, Axis{"offset", FromTo(0, 24)});
}

// Returns q, k or v as one of the three slots of a [B,S,3,N,D] buffer.
TensorView PackedSlot(int slot, int64_t batch, int64_t rows, int64_t heads, int64_t d) {
  const int64_t row = 3 * heads * d;
  return View(slot * heads * d * 2, DType::kBF16, {batch, heads, rows, d}, {rows * row, d, row, 1});
}

TEST(Overlap, PackedQkvViewsDoNotOverlap) {
  const TensorView q = PackedSlot(0, 8, 4096, 32, 128);
  const TensorView k = PackedSlot(1, 8, 4096, 32, 128);
  const TensorView v = PackedSlot(2, 8, 4096, 32, 128);
  EXPECT_FALSE(Overlap(q, k));
  EXPECT_FALSE(Overlap(q, v));
  EXPECT_FALSE(Overlap(v, k));
  EXPECT_TRUE(Overlap(q, q));
  EXPECT_FALSE(OverlapsItself(q));
}

TEST(Overlap, PackedSlotsOneElementTooWideOverlap) {
  TensorView q = PackedSlot(0, 2, 64, 4, 32);
  const TensorView k = PackedSlot(1, 2, 64, 4, 32);
  q.shape[3] = 33;
  EXPECT_TRUE(Overlap(q, k));
  EXPECT_TRUE(OverlapsItself(q));
}

TEST(Overlap, HeadsInterleavedElementwiseAreApart) {
  // The storage is [S, D, N]. One tensor has the even heads, the other the odd heads.
  const TensorView even = View(0, DType::kF32, {1000, 128}, {1024, 8});
  const TensorView odd = View(4, DType::kF32, {1000, 128}, {1024, 8});
  EXPECT_FALSE(Overlap(even, odd));
  EXPECT_FALSE(OverlapsItself(even));
}

TEST(Overlap, BroadcastOverlapsItselfOnlyWhenLongerThanOne) {
  EXPECT_TRUE(OverlapsItself(View(0, DType::kF32, {2, 4}, {0, 1})));
  EXPECT_FALSE(OverlapsItself(View(0, DType::kF32, {1, 4}, {0, 1})));
  EXPECT_FALSE(OverlapsItself(View(0, DType::kF32, {2, 0}, {0, 1})));
}

TEST(Overlap, EmptyTensorsOverlapNothing) {
  const TensorView empty = View(0, DType::kF32, {0, 4}, {4, 1});
  EXPECT_FALSE(Overlap(empty, View(0, DType::kF32, {4, 4}, {4, 1})));
  EXPECT_FALSE(Overlap(empty, empty));
}

TEST(Overlap, HostileStridesEndSoonAndNeverMissAnOverlap) {
  // Each tensor has eight dimensions with pairwise coprime strides. The strides have too many sums to search them all.
  const TensorView a =
      View(0, DType::kU8, {40, 40, 40, 40, 40, 40, 40, 40}, {10007, 20011, 30011, 40009, 50021, 60013, 70001, 80021});
  const TensorView b =
      View(1, DType::kU8, {40, 40, 40, 40, 40, 40, 40, 40}, {11003, 21001, 31013, 41011, 51001, 61001, 71011, 81001});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Overlap(a, b));  // they share 964,784 bytes (found by enumeration)
  EXPECT_TRUE(OverlapsItself(a));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

}  // namespace
}  // namespace fa::layout
