#ifndef FA_TOOLS_FA_CASES_DECODE_CASE_H_
#define FA_TOOLS_FA_CASES_DECODE_CASE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "cases/forward_case.h"
#include "fa/decode_attention.h"

namespace fa::tool {

/// The flags that describe a decode by its sizes. Each sequence has few queries, and all sequences have equally many
/// keys.
struct DecodeCaseFlags {
  ForwardCaseFlags forward;
  int64_t block_size = 0;  ///< if > 0, keys and values lie in pages of this many rows
};

void AddDecodeCaseFlags(CLI::App& command, DecodeCaseFlags& flags);

/// A decode call. `args` points into this object, which therefore cannot be copied.
class DecodeCase {
 public:
  /// Makes tensors without contents, which are enough to plan. If --dtype is a compressed type, queries are bf16.
  /// Throws UsageError or Failure.
  explicit DecodeCase(const DecodeCaseFlags& flags);
  DecodeCase(const DecodeCase&) = delete;
  DecodeCase& operator=(const DecodeCase&) = delete;

  std::optional<DType> compressed;  ///< the type of keys and values if they are compressed
  ForwardCase forward;              ///< the same call on dense keys of the query's type
  int64_t block_size;
  DecodeAttentionArgs args;
  DecodeAttentionOptions options;

  [[nodiscard]] bool paged() const { return block_size > 0; }
  [[nodiscard]] int64_t pages_of_one() const { return paged() ? (forward.sk + block_size - 1) / block_size : 0; }
  /// Returns the sizes of k or v. If keys lie in pages, `batch` is the number of pages.
  [[nodiscard]] TensorSizes PageSizes(int64_t d) const;
  /// Returns the layout of a page. In BNSD a page has one head after another. In other layouts each row of a page has
  /// all heads side by side.
  [[nodiscard]] Layout PageLayout() const;

 private:
  [[nodiscard]] TensorView Keys(const TensorView& dense, int64_t d) const;
  TensorView k_, v_;
  std::vector<int64_t> lengths_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_DECODE_CASE_H_
