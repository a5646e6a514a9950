#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "kernels/benchmarks.h"
#include "kernels/operands.h"
#include "kernels/timing.h"

namespace fa::core::kernels {
namespace {

void Widen(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  const RandomRows rows(dtype, kKeys, d, 1);
  std::vector<float> wide(static_cast<size_t>(kKeys * d));
  const Call call = [&] { table.rows->widen(rows.block(), kKeys, d, wide.data(), d); };
  call();
  for (int64_t i = 0; i < kKeys * d; ++i) CheckNear("element", wide[static_cast<size_t>(i)], rows.at(i / d, i % d), 0);
  TimePass(state, kKeys * d, call);
}

/// Times the conversion of f32 rows to the type. The type represents the rows' numbers exactly, so no number changes.
void Narrow(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  const RandomRows rows(dtype, kKeys, d, 1);
  std::vector<float> wide(static_cast<size_t>(kKeys * d));
  for (int64_t i = 0; i < kKeys * d; ++i) wide[static_cast<size_t>(i)] = static_cast<float>(rows.at(i / d, i % d));
  std::vector<std::byte> narrow(wide.size() * SizeOf(dtype));
  const Call call = [&] { table.rows->narrow(wide.data(), d, kKeys, d, 1.0f, {narrow.data(), dtype, d}); };
  call();
  if (std::memcmp(narrow.data(), rows.block().data, narrow.size()) != 0) throw std::runtime_error("wrong elements");
  TimePass(state, kKeys * d, call);
}

/// Throws std::runtime_error unless `laid` has exactly the numbers of `rows`, in any order, and otherwise zeros.
void CheckSameNumbers(const RandomRows& rows, int64_t columns, std::vector<double> laid) {
  std::vector<double> want(laid.size());
  for (int64_t i = 0; i < kKeys * columns; ++i) want[static_cast<size_t>(i)] = rows.at(i / columns, i % columns);
  std::sort(want.begin(), want.end());
  std::sort(laid.begin(), laid.end());
  if (laid != want) throw std::runtime_error("wrong elements");
}

/// Times the packing of rows into a panel. The benchmarks of outer products check the order of the panel's numbers.
void PackRows(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  const RandomRows rows(dtype, kKeys, d, 1);
  std::vector<float> panel(static_cast<size_t>(kKeys * table.rows->PanelColumns(d)));
  const Call call = [&] { table.rows->pack_rows(rows.block(), kKeys, d, panel.data()); };
  call();
  CheckSameNumbers(rows, d, {panel.begin(), panel.end()});
  TimePass(state, kKeys * d, call);
}

/// Times the packing of rows into words of bf16 pairs. The benchmarks of products check the order of the words.
void PairRows(benchmark::State& state, const KernelTable& table) {
  constexpr int64_t kColumns = 128;
  const RandomRows rows(DType::kBF16, kKeys, kColumns, 1);
  std::vector<float> words(static_cast<size_t>(table.rows->PairedFloats(kKeys, kColumns)));
  const Call call = [&] { table.rows->pair_rows(rows.block(), kKeys, kColumns, words.data(), kColumns); };
  call();
  std::vector<uint16_t> bits(2 * words.size());
  std::memcpy(bits.data(), words.data(), bits.size() * sizeof bits[0]);
  std::vector<double> laid;
  for (const uint16_t each : bits) laid.push_back(FromBf16(each));
  CheckSameNumbers(rows, kColumns, std::move(laid));
  TimePass(state, kKeys * kColumns, call);
}

void Exp2(benchmark::State& state, const KernelTable& table) {
  constexpr double kTwoUlp = 0x1p-22;
  const std::vector<float> x = RandomFloats(2048, 1, -20, 0);
  std::vector<float> y(x.size());
  const Call call = [&] { table.rows->exp2(x.data(), static_cast<int64_t>(x.size()), y.data()); };
  call();
  for (size_t i = 0; i < x.size(); ++i) CheckNear("power", y[i], std::exp2(double{x[i]}), kTwoUlp);
  TimePass(state, static_cast<int64_t>(x.size()), call);
}

}  // namespace

void RegisterRowKernels(const KernelTable& table) {
  using Run = void (*)(benchmark::State&, const KernelTable&, DType, int64_t);
  constexpr int64_t kHeadSize = 128;
  const std::pair<const char*, Run> runs[] = {{"widen", Widen}, {"narrow", Narrow}, {"pack_rows", PackRows}};
  for (const auto& [name, run] : runs) {
    for (const DType dtype : kDTypes) {
      Register(CaseName(name, Name(table.isa), dtype, kHeadSize),
               [run = run, &table, dtype](benchmark::State& state) { run(state, table, dtype, kHeadSize); });
    }
  }
  Register(std::string("BM_exp2/") + Name(table.isa), [&table](benchmark::State& state) { Exp2(state, table); });
}

void RegisterPairRows(const KernelTable& table) {
  Register(std::string("BM_pair_rows/") + Name(table.isa),
           [&table](benchmark::State& state) { PairRows(state, table); });
}

}  // namespace fa::core::kernels
