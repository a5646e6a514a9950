#ifndef FA_TESTS_OPS_DECODE_DECODE_CASE_H_
#define FA_TESTS_OPS_DECODE_DECODE_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fa/decode_attention.h"
#include "ops/inference/int8_output.h"
#include "support/cases/forward_problem.h"
#include "support/compare/compare.h"

namespace fa::test {

enum class KeyForm : uint8_t { kOneTensor, kList, kPages, kPagesOfHeads };
/// Which elements share one scale. A group has neighbouring columns of one head.
enum class Quantization : uint8_t {
  kNone,
  kPerTensor,
  kPerChannel,
  kPerToken,
  kPerHead,
  kPerPage,  ///< the keys of a page, or page_rows keys if there are no pages
  kPerGroup,
  kPerTokenAndHead,
  kPerTokenAndGroup,
};

/// The description of one decode call. Its numbers are the same whether keys lie in one tensor, in a list or in pages.
struct DecodeCase {
  ForwardCase dense;  ///< sizes, values, options, and the lengths in use
  KeyForm keys = KeyForm::kOneTensor;
  int64_t page_rows = 16;
  uint64_t page_order = 1;  ///< the number that determines the random order of the pages
  /// Rows that the query and key tensors have beyond the longest sequence. Packed queries have them at the end.
  int64_t spare_q = 0, spare_k = 0;
  int mask_rank = 4;  ///< rank of a dense mask without heads: 2, 3 or 4
  Quantization quantization = Quantization::kNone;
  /// Whether scales lie in antiquant_scale, which takes only the values of Quantization up to kPerToken. Otherwise they
  /// lie in k_scale and v_scale.
  bool combined = true;
  bool scales_of_keys = false;  ///< whether k_scale and v_scale of paged keys are indexed by key, not by page and row
  int64_t group_columns = 16;   ///< kPerGroup, kPerTokenAndGroup: a group has gcd(group_columns, D) columns
  DType format = DType::kI8;    ///< the type of compressed keys and values
  double scale_factor = 1;      ///< a factor that multiplies all scales
  bool antiquant_offset = true;
  DType antiquant_dtype = DType::kF32;
  std::optional<OutputScaleForm> int8_out = {};  ///< without a value the output has the type of q
};

/// Returns a case with one batch element for each of the key lengths `sk`.
[[nodiscard]] DecodeCase MakeDecodeCase(int64_t heads, int64_t heads_kv, int64_t sq, std::vector<int64_t> sk,
                                        DType dtype = DType::kF32);
/// Returns a case of two heads of compressed keys with 64 columns.
[[nodiscard]] DecodeCase MakeCompressedCase(DType format, Quantization kind, int64_t group, std::vector<int64_t> sk,
                                            DType dtype);
std::ostream& operator<<(std::ostream& out, const DecodeCase& c);

/// The tensors of a case, in guarded buffers. Everything outside the elements in use is NaN, a mask element that drops
/// a pair, or the number of a page that does not exist.
class DecodeProblem {
 public:
  explicit DecodeProblem(const DecodeCase& c) : DecodeProblem(c, MakeReferenceProblem(c.dense)) {}
  /// Takes these values instead of the case's, for example poisoned ones. Compressed keys and values are drawn again.
  DecodeProblem(const DecodeCase& c, reference::Problem values);
  DecodeProblem(const DecodeProblem&) = delete;
  DecodeProblem& operator=(const DecodeProblem&) = delete;

  [[nodiscard]] const DecodeCase& decode_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] DecodeAttentionArgs args() const;
  [[nodiscard]] DecodeAttentionOptions options() const;
  [[nodiscard]] Status Run(Context* context) const { return DecodeAttention(args(), options(), context); }
  /// Returns the outputs. Rows beyond the lengths are in `tail`.
  [[nodiscard]] ForwardOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;
  [[nodiscard]] const OutputScales& output_scales() const { return output_scales_; }
  void SetTableEntry(int64_t b, int64_t page, int32_t value) const;

 private:
  struct Place {
    const Tensor* tensor;
    int64_t offset;
  };
  enum class Part : uint8_t { kKey, kRope, kValue };
  void MakeKeys(Part part);
  void MakeTable();
  void PlaceKeys(Part part);
  void MakeNumbers();
  void Quantize(bool values);
  /// Returns the index of the scale that column x of key j has.
  [[nodiscard]] int64_t NumberAt(bool values, int64_t b, int64_t n, int64_t j, int64_t x) const;
  void PlaceMask();
  void PlacePse();
  [[nodiscard]] Place PlaceOf(Part part, int64_t b, int64_t n, int64_t j) const;
  [[nodiscard]] int64_t ColumnsOf(Part part) const;
  [[nodiscard]] const std::vector<HeadTensor>& TensorsOf(Part part) const;
  [[nodiscard]] int64_t PagesOf(int64_t b) const;
  /// Returns the offset of row i of batch element or packed sequence b.
  [[nodiscard]] int64_t QueryOffset(const HeadTensor& of, int64_t b, int64_t n, int64_t i) const;

  DecodeCase case_;
  reference::Problem values_;
  std::vector<HeadTensor> k_, k_rope_, v_;
  std::vector<TensorView> k_views_, k_rope_views_, v_views_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int64_t> cu_q_;
  HeadTensor q_, q_rope_, out_, lse_;
  Tensor table_, pse_, mask_, sink_;
  Tensor scale_[2], offset_[2];  ///< scales and offsets: of keys, of values; if combined, the first tensor has both
  OutputScales output_scales_;
};

/// Compares the results of a call at a level with the reference on `problem.values()`.
[[nodiscard]] ::testing::AssertionResult MatchesReference(const DecodeProblem& problem, Isa isa,
                                                          const reference::ForwardResult& want);
/// Runs the case on every level of this machine and compares it with the reference in double. Only the outputs may be
/// written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const DecodeProblem& problem);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const DecodeCase& c);
[[nodiscard]] ForwardOutputs OutputsOf(const DecodeProblem& problem, Context* context);
[[nodiscard]] ForwardOutputs OutputsOf(const DecodeCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_DECODE_DECODE_CASE_H_
