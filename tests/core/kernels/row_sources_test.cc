// Tests that results do not depend on where kernels find their rows. They must not depend on rows that are fetched or
// multiplied at the same time either.

#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

constexpr int64_t kColumns = 100, kAhead = 3;

/// Random rows of type `dtype`. Their order in memory differs from their order in the list of addresses.
class ScatteredRows {
 public:
  ScatteredRows(DType dtype, int64_t rows, const RowKernels& kernels)
      : dtype_(dtype), values_(rows, kColumns, kColumns, 7) {
    data_.resize(static_cast<size_t>(rows * kStride) * SizeOf(dtype));
    for (int64_t r = 0; r < rows; ++r)
      kernels.narrow(values_.data() + r * kColumns, kColumns, 1, kColumns, 1, {At(Place(r, rows)), dtype, kStride});
    for (int64_t r = 0; r < rows; ++r) addresses_.push_back(At(Place(r, rows)));
    // Kernels may fetch up to kAhead addresses after the last row's.
    for (int64_t r = 0; r < kAhead; ++r) addresses_.push_back(addresses_.back());
    in_order_.resize(static_cast<size_t>(rows * kColumns) * SizeOf(dtype));
    const size_t bytes = kColumns * SizeOf(dtype);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(in_order_.data() + static_cast<size_t>(r) * bytes, addresses_[static_cast<size_t>(r)], bytes);
  }

  [[nodiscard]] RowBlock ByAddress() const {
    return {.dtype = dtype_, .fetch_ahead = kAhead, .rows = addresses_.data()};
  }
  [[nodiscard]] RowBlock InOrder() const { return {.data = in_order_.data(), .dtype = dtype_, .stride = kColumns}; }

 private:
  static constexpr int64_t kStride = kColumns + 4;

  static int64_t Place(int64_t row, int64_t rows) { return (row * 7 + 3) % rows; }
  char* At(int64_t place) { return data_.data() + static_cast<size_t>(place * kStride) * SizeOf(dtype_); }

  DType dtype_;
  Matrix values_;
  std::vector<char> data_, in_order_;
  std::vector<const void*> addresses_;
};

std::vector<float> Panel(const StripKernels& kernels, DType dtype, const RowKernels& rows, int64_t d = kColumns) {
  const ScatteredRows queries(dtype, kernels.rows, rows);
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < kernels.rows; ++i) lanes.push_back(queries.ByAddress().rows[i]);
  std::vector<float> panel(static_cast<size_t>(kColumns * kernels.width));
  kernels.pack_queries({lanes.data(), dtype, kernels.rows}, d, 1, panel.data());
  return panel;
}

struct Results {
  std::vector<float> scores, row_max, product;
  bool operator==(const Results& other) const = default;
};

Results Multiply(const StripKernels& kernels, const RowBlock& k, const RowBlock& v, int64_t keys,
                 const std::vector<float>& panel) {
  Results results;
  results.scores.resize(static_cast<size_t>(keys * kernels.width));
  results.row_max.resize(static_cast<size_t>(kernels.width), kMaskedScore);
  kernels.scores(k, keys, panel.data(), kColumns, false, results.scores.data(), results.row_max.data());
  std::vector<float> p = results.scores;
  p.resize(p.size() + static_cast<size_t>(kernels.width));  // kernels of pairs read a row of 0 after an odd last key
  if (kernels.pairs.pair_keys != nullptr) kernels.pairs.pair_keys(results.scores.data(), keys, p.data());
  results.product.resize(static_cast<size_t>(kColumns * kernels.width));
  kernels.product(v, keys, p.data(), kColumns, nullptr, results.product.data());
  return results;
}

/// Returns the kernel tables of the levels that this CPU has: for each level, for its bf16 pairs, and for the emulated
/// tile unit.
std::vector<const KernelTable*> Tables() {
  std::vector<const KernelTable*> tables;
  for (const Level& level : Levels()) {
    if (level.strip == 0) tables.push_back(level.table);
  }
  const KernelTable& bf16 = Kernels(DetectIsa(), DType::kBF16);
  if (bf16.pairs()) tables.push_back(&bf16);
  tables.push_back(&Kernels(kAmxEmulated, DType::kBF16));
  return tables;
}

/// Kernels of few rows, with the row kernels of their level.
struct FewRows {
  const StripKernels* kernels;
  const RowKernels* rows;
};
std::ostream& operator<<(std::ostream& out, const FewRows& few) { return out << few.kernels->name; }

std::vector<FewRows> EveryFewRows() {
  std::vector<FewRows> all;
  for (const KernelTable* table : Tables()) {
    for (int i = 0; i < table->few_count; ++i) all.push_back({&table->few[i], table->rows});
  }
  return all;
}

TEST(RowSources, RowsByAddressGiveTheBitsOfRowsInOrder) {
  const auto check = [](const FewRows& few, DType dtype, int64_t keys) {
    const std::vector<float> panel = Panel(*few.kernels, dtype, *few.rows);
    const ScatteredRows rows(dtype, keys, *few.rows);
    EXPECT_EQ(Multiply(*few.kernels, rows.ByAddress(), rows.ByAddress(), keys, panel),
              Multiply(*few.kernels, rows.InOrder(), rows.InOrder(), keys, panel));
  };
  ForEachCase(check, Axis{"kernels", EveryFewRows()}, Axis{"type", kFloatTypes}, Axis{"keys", {1, 5, 16, 41}});
}

TEST(RowSources, ScoresBesideAProductGiveTheBitsOfTheTwoAlone) {
  struct Sizes {
    int64_t keys, keys_of_product, d, dv;
  };
  int compared = 0;
  const auto check = [&](const FewRows& few, DType dtype, const Sizes& sizes, bool is_scaled) {
    const StripKernels& kernels = *few.kernels;
    if (kernels.few_rows.scores_beside == nullptr) return;
    const auto& [keys, keys_of_product, d, dv] = sizes;
    const std::vector<float> panel = Panel(kernels, dtype, *few.rows, d);
    const ScatteredRows k(dtype, keys, *few.rows), v(dtype, keys_of_product, *few.rows);
    Matrix p(keys_of_product, kernels.width, kernels.width, 8), alpha(1, kernels.width, kernels.width, 9);
    const float* scaled = is_scaled ? alpha.data() : nullptr;
    Matrix scores(keys, kernels.width, kernels.width, 10), row_max(1, kernels.width, kernels.width, 11);
    Matrix o(kernels.rows, dv, dv, 12);
    Matrix beside_scores = scores, beside_max = row_max, beside_o = o;
    kernels.scores(k.ByAddress(), keys, panel.data(), d, false, scores.data(), row_max.data());
    kernels.product(v.ByAddress(), keys_of_product, p.data(), dv, scaled, o.data());
    kernels.few_rows.scores_beside(k.ByAddress(), keys, panel.data(), d, beside_scores.data(), beside_max.data(),
                                   {v.ByAddress(), keys_of_product, p.data(), dv, scaled, beside_o.data()});
    EXPECT_TRUE(SameBits(beside_scores, scores));
    EXPECT_TRUE(SameBits(beside_max, row_max));
    EXPECT_TRUE(SameBits(beside_o, o));
    ++compared;
  };
  const Sizes all[] = {{64, 64, 96, 96}, {32, 32, 100, 64}, {16, 32, 64, 100},
                       {41, 16, 70, 33}, {5, 37, 40, 40},   {33, 3, 7, 100}};
  ForEachCase(check, Axis{"kernels", EveryFewRows()}, Axis{"type", kFloatTypes}, Axis{"sizes", all},
              Axis{"scaled", {false, true}});
  EXPECT_EQ(compared > 0, Includes(DetectIsa(), Isa::kAvx2));
}

TEST(RowSources, FetchingFromAListChangesNothing) {
  const std::vector<char> fetched(5000);
  for (const KernelTable* any : Tables()) {
    const KernelTable& table = *any;
    std::vector<const StripKernels*> strips;
    for (int i = 0; i < table.strip_count; ++i) strips.push_back(&table.strips[i]);
    for (int i = 0; table.row_state != nullptr && i < table.strip_count; ++i) strips.push_back(&table.row_state[i]);
    const DType dtype = table.pairs() ? DType::kBF16 : DType::kF32;
    for (const StripKernels* kernels : strips) {
      const std::vector<float> panel = Panel(*kernels, dtype, *table.rows);
      for (const int64_t keys : {1, 9, 64}) {
        const ScatteredRows in(dtype, keys, *table.rows);
        RowBlock k = in.InOrder(), v = k;
        std::vector<float> pairs(static_cast<size_t>(table.rows->PairedFloats(keys, kColumns)));
        if (table.pairs()) {
          table.rows->pair_rows(k, keys, kColumns, pairs.data(), kColumns);
          v = table.rows->Paired(pairs.data(), kColumns);
        }
        const Results plain = Multiply(*kernels, k, v, keys, panel);
        const FetchList::Run runs[] = {{fetched.data(), fetched.data() + 700},
                                       {fetched.data() + 700, fetched.data() + 700},
                                       {fetched.data() + 900, fetched.data() + 5000}};
        FetchList list{.run = runs, .end = runs + std::size(runs)};
        k.fetch = v.fetch = &list;
        k.fetch_lines = v.fetch_lines = 60;
        EXPECT_EQ(Multiply(*kernels, k, v, keys, panel), plain) << kernels->name << " keys " << keys;
        // The kernels on OpenBLAS do not fetch from the list.
        if (keys == 64 && &table != &PortableBlasKernels()) {
          EXPECT_EQ(list.run, list.end) << kernels->name << ": half of 120 lines each, of 76";
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
