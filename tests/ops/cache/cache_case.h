#ifndef FA_TESTS_OPS_CACHE_CACHE_CASE_H_
#define FA_TESTS_OPS_CACHE_CACHE_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "fa/cache_rows.h"
#include "support/tensor.h"

namespace fa::test {

/// The common part of a scatter and a gather. `seed` also decides the strides.
struct CacheCase {
  uint64_t seed = 1;
  CacheForm form = CacheForm::kBnBsND;
  bool flat = false;  ///< for kNZ: the cache has rank 4 instead of 5
  DType key_type = DType::kF16, value_type = DType::kF16, index_type = DType::kI32;
  int64_t rows = 5, heads = 2, key_size = 8, value_size = 8, chunk = 4;
  int64_t pages = 3, page_rows = 4;
  bool any_strides = false;  ///< dimensions are nested in a random order, with gaps
  Placement placement = {};
};

/// How rows are written into a cache: as copied bytes (kNone), or as 8-bit codes. kOwnScale computes a scale per place
/// and stores it. kGivenScale and kGivenScalePerHead use scales that the caller gives.
enum class Codes : uint8_t { kNone, kOwnScale, kGivenScale, kGivenScalePerHead };

struct ScatterCase : CacheCase {
  bool has_value = true;
  Codes key_codes = Codes::kNone, value_codes = Codes::kNone;  ///< with codes, the rows' type is f32, f16 or bf16
  DType key_code_type = DType::kI8, value_code_type = DType::kF8E4M3;
  int64_t source_rows = -1;  ///< the number of rows of key and value if the call has source rows; -1: it has none
};

struct GatherCase : CacheCase {
  bool flat_rows = false;  ///< for kNZ of rank 4: the outputs are [T, N*D]
  bool cumulative = false, has_offset = false;
  int64_t sequences = 2, table_columns = 3;
};

std::ostream& operator<<(std::ostream& out, const ScatterCase& c);
std::ostream& operator<<(std::ostream& out, const GatherCase& c);
/// These functions return a valid case that depends on the seed alone.
[[nodiscard]] ScatterCase RandomScatterCase(uint64_t seed);
[[nodiscard]] GatherCase RandomGatherCase(uint64_t seed);

/// Rows [T, N, D] or [T, N*D], and a cache. The functions return the address of an element in each.
struct CachedRows {
  Tensor rows, cache;
  int64_t heads = 1, size = 1, chunk = 1;
  CacheForm form = CacheForm::kBnBsND;

  [[nodiscard]] std::byte* RowElement(int64_t t, int64_t n, int64_t d) const;
  [[nodiscard]] std::byte* CacheElement(int64_t page, int64_t row, int64_t n, int64_t d) const;
};

/// The scales of quantised rows: given scales or the scales in a cache. All scales are absent if the rows are copied
/// unchanged.
struct CodeScales {
  Codes codes = Codes::kNone;
  Tensor given, cache;
};

/// A scatter of random bytes in guarded buffers. Some rows have no place in the cache, and some share a place.
class ScatterProblem {
 public:
  explicit ScatterProblem(const ScatterCase& c);
  ScatterProblem(const ScatterProblem&) = delete;
  ScatterProblem& operator=(const ScatterProblem&) = delete;

  [[nodiscard]] ScatterRowsArgs args() const;
  [[nodiscard]] ScatterRowsOptions options() const { return {.form = case_.form}; }
  [[nodiscard]] Snapshot TakeSnapshot() const;
  /// Sets the caches to the bytes that they hold before the call.
  void RestoreInputs() const;
  /// Compares every byte of the caches with the expected one.
  [[nodiscard]] ::testing::AssertionResult MatchesReference() const;

 private:
  [[nodiscard]] ::testing::AssertionResult Matches(const CachedRows& of, const CodeScales& scales, bool key,
                                                   const std::vector<int64_t>& row_of) const;
  [[nodiscard]] ::testing::AssertionResult MatchesCodes(const CachedRows& of, const CodeScales& scales, int64_t slot,
                                                        int64_t row) const;

  ScatterCase case_;
  CachedRows key_, value_;
  CodeScales key_scales_, value_scales_;
  Tensor slots_, sources_;
  std::vector<int64_t> slot_values_, source_values_;
};

/// A gather of random bytes in guarded buffers. The table has some pages that do not exist.
class GatherProblem {
 public:
  explicit GatherProblem(const GatherCase& c);
  GatherProblem(const GatherProblem&) = delete;
  GatherProblem& operator=(const GatherProblem&) = delete;

  [[nodiscard]] GatherRowsArgs args() const;
  [[nodiscard]] GatherRowsOptions options() const { return {.form = case_.form, .cumulative = case_.cumulative}; }
  [[nodiscard]] Snapshot TakeSnapshot() const;
  /// Sets the outputs to the bytes that they hold before the call.
  void RestoreInputs() const;
  /// Compares every byte of the outputs with the expected one.
  [[nodiscard]] ::testing::AssertionResult MatchesReference() const;

 private:
  GatherCase case_;
  CachedRows key_, value_;
  Tensor table_, lengths_, offsets_;
  std::vector<int64_t> length_values_;
};

}  // namespace fa::test

#endif  // FA_TESTS_OPS_CACHE_CACHE_CASE_H_
