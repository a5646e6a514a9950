#include "ops/cache/cache_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <ostream>
#include <tuple>

#include "support/cases/random_token_case.h"
#include "support/cases/random_values.h"
#include "support/compressed_number.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// The tensors of a case. Their numbers decide which random bytes and strides they get.
enum Part : int64_t {
  kKey,
  kValue,
  kKeyCache,
  kValueCache,
  kSlots,
  kSources,
  kTable,
  kLengths,
  kOffsets,
  kKeyScale,
  kValueScale,
  kKeyScaleCache,
  kValueScaleCache
};

/// Returns strides under which the dimensions are nested in a random order, with gaps.
Dims AnyStride(const Dims& shape, uint64_t seed, Part part) {
  std::vector<int> order(static_cast<size_t>(shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  const auto draw = [&](int64_t x, int64_t most) {
    return static_cast<int64_t>(RandomBits(seed, Tag::kSink, {part, x}) % static_cast<uint64_t>(most));
  };
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(draw(static_cast<int64_t>(i), static_cast<int64_t>(i)))]);
  }
  Dims stride = shape;
  int64_t step = 1 + draw(100, 2);
  for (const int dim : order) {
    stride[dim] = step;
    step = step * std::max<int64_t>(shape[dim], 1) + draw(200 + dim, 3);
  }
  return stride;
}

Tensor Make(const CacheCase& c, Part part, DType dtype, const Dims& shape) {
  return {dtype, shape, c.any_strides ? AnyStride(shape, c.seed, part) : DenseStride(shape), c.placement};
}

int64_t At(const Tensor& tensor, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  int dim = 0;
  for (const int64_t i : index) offset += i * tensor.stride()[dim++];
  return offset;
}

/// Sets every byte of the tensor's elements to a random value.
void FillBytes(const Tensor& tensor, uint64_t seed, Part part) {
  if (Extent(tensor.shape(), tensor.stride()) == 0) return;
  int64_t drawn = 0;
  const std::function<void(int, int64_t)> fill = [&](int dim, int64_t offset) {
    if (dim < tensor.shape().rank()) {
      for (int64_t i = 0; i < tensor.shape()[dim]; ++i) fill(dim + 1, offset + i * tensor.stride()[dim]);
      return;
    }
    const uint64_t bits = RandomBits(seed, Tag::kV, {part, ++drawn});
    std::memcpy(tensor.Address(offset), &bits, SizeOf(tensor.dtype()));
  };
  fill(0, 0);
}

void SetIndices(const Tensor& tensor, const std::vector<int64_t>& values) {
  for (int64_t i = 0; i < std::ssize(values); ++i) tensor.Set(At(tensor, {i}), static_cast<double>(values[i]));
}

Dims CacheShape(const CacheCase& c, int64_t size) {
  switch (c.form) {
    case CacheForm::kBnBsND: return {c.pages, c.page_rows, c.heads, size};
    case CacheForm::kBnNBsD: return {c.pages, c.heads, c.page_rows, size};
    case CacheForm::kNZ: break;
  }
  if (c.flat) return {c.pages, c.heads * (size / c.chunk), c.page_rows, c.chunk};
  return {c.pages, c.heads, size / c.chunk, c.page_rows, c.chunk};
}

CachedRows MakeRows(const CacheCase& c, bool key, int64_t rows, bool flat_rows, std::optional<DType> codes = {}) {
  const int64_t size = key ? c.key_size : c.value_size;
  const DType dtype = key ? c.key_type : c.value_type;
  const Dims shape = flat_rows ? Dims{rows, c.heads * size} : Dims{rows, c.heads, size};
  return {.rows = Make(c, key ? kKey : kValue, dtype, shape),
          .cache = Make(c, key ? kKeyCache : kValueCache, codes.value_or(dtype), CacheShape(c, size)),
          .heads = c.heads,
          .size = size,
          .chunk = c.chunk,
          .form = c.form};
}

std::ostream& Print(std::ostream& out, const CacheCase& c) {
  return out << "seed " << c.seed << " " << Name(c.form) << (c.flat ? " flat " : " ") << Name(c.key_type) << ","
             << Name(c.value_type) << "," << Name(c.index_type) << " rows " << c.rows << " heads " << c.heads
             << " sizes " << c.key_size << "," << c.value_size << " chunk " << c.chunk << " pages " << c.pages << " of "
             << c.page_rows << (c.any_strides ? " any strides" : "") << " place " << static_cast<int>(c.placement.place)
             << "," << c.placement.misalignment;
}

void DrawCache(CacheCase* c, RandomChoices* random) {
  const auto types = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI64, DType::kU8};
  c->form = random->OneOf({CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ});
  c->flat = random->Pick(0, 1) == 0;
  c->key_type = random->OneOf(types);
  c->value_type = random->OneOf({c->key_type, random->OneOf(types)});
  c->index_type = random->OneOf({DType::kI32, DType::kI64});
  c->rows = random->OneOf<int64_t>({random->Pick(0, 9), random->Pick(1, 60), random->Pick(100, 250)});
  c->heads = random->Pick(1, 3);
  c->chunk = random->OneOf<int64_t>({1, 4, 8, 16, 32});
  c->key_size = c->chunk * random->Pick(0, 5);
  c->value_size = c->chunk * random->Pick(1, 5);
  c->pages = random->Pick(1, 9);
  c->page_rows = random->OneOf<int64_t>({1, 2, 5, 16, 64});
  c->any_strides = random->Pick(0, 2) == 0;
  c->placement.place = random->OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c->placement.place == Place::kInside) c->placement.misalignment = random->Pick(0, 17);
}

int64_t Draw(uint64_t seed, Part part, int64_t i, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(RandomBits(seed, Tag::kChoice, {part, i}) % static_cast<uint64_t>(high - low + 1));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ScatterCase& c) {
  Print(out, c) << (c.has_value ? " value" : "") << " source rows " << c.source_rows;
  for (const auto& [name, codes, type] :
       {std::tuple{" key", c.key_codes, c.key_code_type}, std::tuple{" value", c.value_codes, c.value_code_type}}) {
    if (codes != Codes::kNone) out << name << " as " << Name(type) << " scales " << static_cast<int>(codes);
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const GatherCase& c) {
  return Print(out, c) << (c.flat_rows ? " flat rows" : "") << (c.cumulative ? " cumulative" : "")
                       << (c.has_offset ? " offset" : "") << " sequences " << c.sequences << " table "
                       << c.table_columns;
}

ScatterCase RandomScatterCase(uint64_t seed) {
  RandomChoices random(seed);
  ScatterCase c;
  c.seed = seed;
  DrawCache(&c, &random);
  c.has_value = random.Pick(0, 3) > 0;
  if (random.Pick(0, 2) == 0) c.source_rows = random.Pick(1, 40);
  const auto draw_codes = [&](Codes* codes, DType* code_type, DType* rows_type) {
    *codes = random.OneOf({Codes::kNone, Codes::kOwnScale, Codes::kGivenScale, Codes::kGivenScalePerHead});
    if (*codes == Codes::kNone) return;
    *code_type = random.OneOf({DType::kI8, DType::kF8E4M3});
    *rows_type = random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
  };
  draw_codes(&c.key_codes, &c.key_code_type, &c.key_type);
  draw_codes(&c.value_codes, &c.value_code_type, &c.value_type);
  return c;
}

GatherCase RandomGatherCase(uint64_t seed) {
  RandomChoices random(seed);
  GatherCase c;
  c.seed = seed;
  DrawCache(&c, &random);
  c.flat_rows = c.form == CacheForm::kNZ && c.flat && random.Pick(0, 1) == 0;
  c.cumulative = random.Pick(0, 1) == 0;
  c.has_offset = random.Pick(0, 1) == 0;
  c.sequences = random.Pick(0, 5);
  c.table_columns = random.Pick(0, 9);
  return c;
}

std::byte* CachedRows::RowElement(int64_t t, int64_t n, int64_t d) const {
  return rows.Address(rows.shape().rank() == 3 ? At(rows, {t, n, d}) : At(rows, {t, n * size + d}));
}

std::byte* CachedRows::CacheElement(int64_t page, int64_t row, int64_t n, int64_t d) const {
  switch (form) {
    case CacheForm::kBnBsND: return cache.Address(At(cache, {page, row, n, d}));
    case CacheForm::kBnNBsD: return cache.Address(At(cache, {page, n, row, d}));
    case CacheForm::kNZ: break;
  }
  const int64_t column = n * size + d;
  if (cache.shape().rank() == 4) return cache.Address(At(cache, {page, column / chunk, row, column % chunk}));
  return cache.Address(At(cache, {page, n, d / chunk, row, d % chunk}));
}

namespace {

std::optional<DType> CodeType(Codes codes, DType type) {
  return codes == Codes::kNone ? std::nullopt : std::optional(type);
}

/// Fills rows that are quantised. Each head of a row has numbers of one kind: numbers of any magnitude, zeros,
/// subnormal numbers, or one number that is not finite.
void FillNumbers(const CachedRows& of, uint64_t seed, Part part) {
  const DType dtype = of.rows.dtype();
  const auto set = [&](int64_t t, int64_t n, int64_t d, double value) {
    of.rows.Set(At(of.rows, {t, n, d}), RoundTo(dtype, value));
  };
  for (int64_t t = 0; t < of.rows.shape()[0]; ++t) {
    for (int64_t n = 0; n < of.heads; ++n) {
      const int64_t kind = Draw(seed, part, t * 100 + n, 0, 9);
      const double unit = kind == 0 ? 0 : kind == 1 ? 1e-44 : std::ldexp(1.0, static_cast<int>(kind) * 3 - 15);
      for (int64_t d = 0; d < of.size; ++d) {
        const auto step = static_cast<double>(Draw(seed, part, ((t + 1) * 100 + n) * 1000 + d, -2000, 2000));
        set(t, n, d, unit * step / 600);
      }
      if (of.size == 0 || kind < 8) continue;
      const double infinity = std::numeric_limits<double>::infinity();
      set(t, n, Draw(seed, part, t * 100 + n + 50, 0, of.size - 1), kind == 8 ? std::nan("") : -infinity);
    }
  }
}

CodeScales MakeScales(const ScatterCase& c, bool key) {
  CodeScales scales{.codes = key ? c.key_codes : c.value_codes, .given = {}, .cache = {}};
  const Part given = key ? kKeyScale : kValueScale, cache = key ? kKeyScaleCache : kValueScaleCache;
  if (scales.codes == Codes::kNone) return scales;
  if (scales.codes == Codes::kOwnScale) {
    scales.cache = Make(c, cache, DType::kF32, {c.pages, c.heads, c.page_rows, 1});
    return scales;
  }
  const int64_t count = scales.codes == Codes::kGivenScale ? 1 : c.heads;
  scales.given = Make(c, given, DType::kF32, {count});
  for (int64_t n = 0; n < count; ++n) {
    const auto drawn = static_cast<double>(Draw(c.seed, given, n, 1, 1000));
    scales.given.Set(At(scales.given, {n}), RoundTo(DType::kF32, drawn / 20000));
  }
  return scales;
}

void Fill(const ScatterCase& c, const CachedRows& of, bool key) {
  const Part part = key ? kKey : kValue;
  const bool quantised = (key ? c.key_codes : c.value_codes) != Codes::kNone;
  quantised ? FillNumbers(of, c.seed, part) : FillBytes(of.rows, c.seed, part);
}

}  // namespace

ScatterProblem::ScatterProblem(const ScatterCase& c)
    : case_(c),
      key_(
          MakeRows(c, true, c.source_rows < 0 ? c.rows : c.source_rows, false, CodeType(c.key_codes, c.key_code_type))),
      key_scales_(MakeScales(c, true)),
      slots_(Make(c, kSlots, c.index_type, {c.rows})) {
  Fill(c, key_, true);
  if (c.has_value) {
    value_ = MakeRows(c, false, c.source_rows < 0 ? c.rows : c.source_rows, false,
                      CodeType(c.value_codes, c.value_code_type));
    value_scales_ = MakeScales(c, false);
    Fill(c, value_, false);
  }
  for (int64_t t = 0; t < c.rows; ++t) {
    slot_values_.push_back(Draw(c.seed, kSlots, t, -std::min<int64_t>(c.pages, 3), c.pages * c.page_rows - 1));
    source_values_.push_back(c.source_rows < 0 ? t : Draw(c.seed, kSources, t, 0, c.source_rows - 1));
  }
  SetIndices(slots_, slot_values_);
  if (c.source_rows >= 0) {
    sources_ = Make(c, kSources, c.index_type, {c.rows});
    SetIndices(sources_, source_values_);
  }
  RestoreInputs();
}

ScatterRowsArgs ScatterProblem::args() const {
  ScatterRowsArgs args;
  args.key = key_.rows.view();
  args.slot_mapping = slots_.view();
  args.key_cache = key_.cache.mutable_view();
  if (!key_scales_.given.absent()) args.key_scale = key_scales_.given.view();
  if (!key_scales_.cache.absent()) args.key_scale_cache = key_scales_.cache.mutable_view();
  if (case_.has_value) {
    args.value = value_.rows.view();
    args.value_cache = value_.cache.mutable_view();
    if (!value_scales_.given.absent()) args.value_scale = value_scales_.given.view();
    if (!value_scales_.cache.absent()) args.value_scale_cache = value_scales_.cache.mutable_view();
  }
  if (!sources_.absent()) args.source_rows = sources_.view();
  return args;
}

Snapshot ScatterProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* input : {&key_.rows, &slots_, &value_.rows, &sources_, &key_scales_.given, &value_scales_.given}) {
    if (!input->absent()) snapshot.Add(*input);
  }
  for (const Tensor* output : {&key_.cache, &value_.cache, &key_scales_.cache, &value_scales_.cache}) {
    if (!output->absent()) snapshot.Allow(*output);
  }
  return snapshot;
}

void ScatterProblem::RestoreInputs() const {
  FillBytes(key_.cache, case_.seed, kKeyCache);
  if (!key_scales_.cache.absent()) FillBytes(key_scales_.cache, case_.seed, kKeyScaleCache);
  if (!case_.has_value) return;
  FillBytes(value_.cache, case_.seed, kValueCache);
  if (!value_scales_.cache.absent()) FillBytes(value_scales_.cache, case_.seed, kValueScaleCache);
}

AssertionResult ScatterProblem::MatchesReference() const {
  // The last row that is written to each place of the cache, or -1.
  std::vector<int64_t> row_of(static_cast<size_t>(case_.pages * case_.page_rows), -1);
  for (int64_t t = 0; t < case_.rows; ++t) {
    if (slot_values_[t] >= 0) row_of[slot_values_[t]] = source_values_[t];
  }
  AssertionResult result = Matches(key_, key_scales_, true, row_of);
  if (!result) return result << " of key";
  if (!case_.has_value) return result;
  result = Matches(value_, value_scales_, false, row_of);
  return result ? result : result << " of value";
}

AssertionResult ScatterProblem::Matches(const CachedRows& of, const CodeScales& scales, bool key,
                                        const std::vector<int64_t>& row_of) const {
  const size_t bytes = SizeOf(of.cache.dtype());
  CachedRows before = of;
  before.cache = Tensor(of.cache.dtype(), of.cache.shape(), of.cache.stride());
  FillBytes(before.cache, case_.seed, key ? kKeyCache : kValueCache);
  Tensor scales_before;
  if (!scales.cache.absent()) {
    scales_before = Tensor(DType::kF32, scales.cache.shape(), scales.cache.stride());
    FillBytes(scales_before, case_.seed, key ? kKeyScaleCache : kValueScaleCache);
  }
  for (int64_t slot = 0; slot < std::ssize(row_of); ++slot) {
    const int64_t page = slot / case_.page_rows, row = slot % case_.page_rows;
    if (row_of[slot] >= 0 && scales.codes != Codes::kNone) {
      AssertionResult result = MatchesCodes(of, scales, slot, row_of[slot]);
      if (!result) return result;
      continue;
    }
    for (int64_t x = 0; x < of.heads * of.size; ++x) {
      const int64_t n = x / of.size, d = x % of.size;
      const std::byte* want =
          row_of[slot] < 0 ? before.CacheElement(page, row, n, d) : of.RowElement(row_of[slot], n, d);
      if (std::memcmp(of.CacheElement(page, row, n, d), want, bytes) == 0) continue;
      return AssertionFailure() << "place " << slot << " head " << n << " column " << d << ", row " << row_of[slot];
    }
    for (int64_t n = 0; n < of.heads && !scales.cache.absent(); ++n) {
      const int64_t at = At(scales.cache, {page, n, row, 0});
      if (std::memcmp(scales.cache.Address(at), scales_before.Address(at), sizeof(float)) == 0) continue;
      return AssertionFailure() << "scale of place " << slot << " head " << n;
    }
  }
  return AssertionSuccess();
}

AssertionResult ScatterProblem::MatchesCodes(const CachedRows& of, const CodeScales& scales, int64_t slot,
                                             int64_t row) const {
  const int64_t page = slot / case_.page_rows, in_page = slot % case_.page_rows;
  const DType format = of.cache.dtype();
  const auto number = [&](int64_t n, int64_t d) { return static_cast<float>(of.rows.Get(At(of.rows, {row, n, d}))); };
  for (int64_t n = 0; n < of.heads; ++n) {
    float scale = 0;
    if (scales.codes == Codes::kOwnScale) {
      bool finite = true;
      for (int64_t d = 0; d < of.size; ++d) {
        finite = finite && std::isfinite(number(n, d));
        scale = std::max(scale, std::abs(number(n, d)));
      }
      scale = finite ? scale / (format == DType::kI8 ? 127.0F : 448.0F) : std::nanf("");
      const auto got = static_cast<float>(scales.cache.Get(At(scales.cache, {page, n, in_page, 0})));
      if (got != scale && !(std::isnan(got) && std::isnan(scale))) {
        return AssertionFailure() << "scale of place " << slot << " head " << n << " is " << got << ", want " << scale;
      }
    } else {
      scale = static_cast<float>(scales.given.Get(scales.codes == Codes::kGivenScale ? 0 : At(scales.given, {n})));
    }
    for (int64_t d = 0; d < of.size; ++d) {
      const uint8_t want = scale > 0 ? NearestCode(format, number(n, d) / scale) : uint8_t{0};
      const auto got = static_cast<uint8_t>(*of.CacheElement(page, in_page, n, d));
      if (got == want) continue;
      return AssertionFailure() << "place " << slot << " head " << n << " column " << d << ", row " << row << ": code "
                                << int{got} << ", want " << int{want} << " of " << number(n, d) << " / " << scale;
    }
  }
  return AssertionSuccess();
}

GatherProblem::GatherProblem(const GatherCase& c)
    : case_(c),
      key_(MakeRows(c, true, c.rows, c.flat_rows)),
      value_(MakeRows(c, false, c.rows, c.flat_rows)),
      table_(Make(c, kTable, c.index_type, {c.sequences, c.table_columns})),
      lengths_(Make(c, kLengths, c.index_type, {c.sequences + (c.cumulative ? 1 : 0)})) {
  FillBytes(key_.cache, c.seed, kKeyCache);
  FillBytes(value_.cache, c.seed, kValueCache);
  for (int64_t b = 0; b < c.sequences; ++b) {
    for (int64_t i = 0; i < c.table_columns; ++i) {
      table_.Set(At(table_, {b, i}), static_cast<double>(Draw(c.seed, kTable, b * 100 + i, -1, c.pages)));
    }
    length_values_.push_back(Draw(c.seed, kLengths, b, 0, c.page_rows * (c.table_columns + 1)));
  }
  std::vector<int64_t> lengths = length_values_;
  if (c.cumulative) {
    lengths.insert(lengths.begin(), 0);
    std::partial_sum(lengths.begin(), lengths.end(), lengths.begin());
  }
  SetIndices(lengths_, lengths);
  if (c.has_offset) {
    std::vector<int64_t> offsets;
    for (int64_t b = 0; b < c.sequences; ++b) offsets.push_back(c.page_rows * Draw(c.seed, kOffsets, b, 0, 3));
    offsets_ = Make(c, kOffsets, c.index_type, {c.sequences});
    SetIndices(offsets_, offsets);
  }
  RestoreInputs();
}

GatherRowsArgs GatherProblem::args() const {
  GatherRowsArgs args;
  args.key_cache = key_.cache.view();
  args.value_cache = value_.cache.view();
  args.block_table = table_.view();
  args.seq_lens = lengths_.view();
  if (!offsets_.absent()) args.seq_offset = offsets_.view();
  args.key = key_.rows.mutable_view();
  args.value = value_.rows.mutable_view();
  return args;
}

Snapshot GatherProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* input : {&key_.cache, &value_.cache, &table_, &lengths_}) snapshot.Add(*input);
  if (!offsets_.absent()) snapshot.Add(offsets_);
  snapshot.Allow(key_.rows);
  snapshot.Allow(value_.rows);
  return snapshot;
}

void GatherProblem::RestoreInputs() const {
  FillBytes(key_.rows, case_.seed, kKey);
  FillBytes(value_.rows, case_.seed, kValue);
}

AssertionResult GatherProblem::MatchesReference() const {
  constexpr int64_t kZero = -1, kUntouched = -2;
  // (page, row) from which each output row comes.
  std::vector<std::pair<int64_t, int64_t>> source(static_cast<size_t>(case_.rows), {kUntouched, 0});
  int64_t t = 0;
  for (int64_t b = 0; b < case_.sequences; ++b) {
    const auto offset = offsets_.absent() ? 0 : static_cast<int64_t>(offsets_.Get(At(offsets_, {b})));
    for (int64_t i = 0; i < length_values_[b] && t < case_.rows; ++i, ++t) {
      const int64_t column = (offset + i) / case_.page_rows;
      const auto page = column < case_.table_columns ? static_cast<int64_t>(table_.Get(At(table_, {b, column}))) : -1;
      source[t] = {page < 0 || page >= case_.pages ? kZero : page, (offset + i) % case_.page_rows};
    }
  }
  const uint64_t zero = 0;
  for (const CachedRows* of : {&key_, &value_}) {
    CachedRows before = *of;
    before.rows = Tensor(of->rows.dtype(), of->rows.shape(), of->rows.stride());
    FillBytes(before.rows, case_.seed, of == &key_ ? kKey : kValue);
    for (t = 0; t < case_.rows; ++t) {
      const auto [page, row] = source[t];
      for (int64_t x = 0; x < of->heads * of->size; ++x) {
        const int64_t n = x / of->size, d = x % of->size;
        const void* want = page == kUntouched ? before.RowElement(t, n, d)
                           : page == kZero    ? static_cast<const void*>(&zero)
                                              : of->CacheElement(page, row, n, d);
        if (std::memcmp(of->RowElement(t, n, d), want, SizeOf(of->rows.dtype())) == 0) continue;
        return AssertionFailure() << (of == &key_ ? "key" : "value") << " row " << t << " head " << n << " column " << d
                                  << ", page " << page;
      }
    }
  }
  return AssertionSuccess();
}

}  // namespace fa::test
