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
/// What has a scale of its own. A group is some neighbouring columns of a head.
enum class Quantization : uint8_t {
  kNone,
  kPerTensor,
  kPerChannel,
  kPerToken,
  kPerHead,
  kPerPage,  ///< page_rows keys, in pages or not
  kPerGroup,
  kPerTokenAndHead,
  kPerTokenAndGroup,
};

/// The description of one decode call. A case gives the same numbers in every form of its keys.
struct DecodeCase {
  ForwardCase dense;  ///< sizes, values, options, and the lengths in use
  KeyForm keys = KeyForm::kOneTensor;
  int64_t page_rows = 16;
  uint64_t page_order = 1;           ///< each value gives another order of pages
  int64_t spare_q = 0, spare_k = 0;  ///< rows of the query and key tensors past the longest batch element
  int mask_rank = 4;                 ///< rank of a dense mask without heads: 2, 3 or 4
  Quantization quantization = Quantization::kNone;
  bool combined = true;  ///< whether scales lie in antiquant_scale, which has the first three kinds; else in k_scale
  DType format = DType::kI8;  ///< of compressed keys and values
  double scale_factor = 1;    ///< multiplies the scales
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

/// The tensors of a case in guarded buffers. The values are in their places. Everything else is NaN, mask elements that
/// drop a pair, or numbers of pages that do not exist.
class DecodeProblem {
 public:
  explicit DecodeProblem(const DecodeCase& c) : DecodeProblem(c, MakeReferenceProblem(c.dense)) {}
  /// Takes other values than the case has, for example poisoned ones. int8 keys and values are drawn anew.
  DecodeProblem(const DecodeCase& c, reference::Problem values);
  DecodeProblem(const DecodeProblem&) = delete;
  DecodeProblem& operator=(const DecodeProblem&) = delete;

  [[nodiscard]] const DecodeCase& decode_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] DecodeAttentionArgs args() const;
  [[nodiscard]] DecodeAttentionOptions options() const;
  [[nodiscard]] Status Run(Context* context) const { return DecodeAttention(args(), options(), context); }
  /// Returns the outputs; `tail` has the rows past the lengths.
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
  /// Returns the element of a scale for column x of key j.
  [[nodiscard]] int64_t NumberAt(bool values, int64_t b, int64_t n, int64_t j, int64_t x) const;
  void PlaceMask();
  void PlacePse();
  [[nodiscard]] Place PlaceOf(Part part, int64_t b, int64_t n, int64_t j) const;
  [[nodiscard]] int64_t ColumnsOf(Part part) const;
  [[nodiscard]] const std::vector<HeadTensor>& TensorsOf(Part part) const;
  [[nodiscard]] int64_t PagesOf(int64_t b) const;

  DecodeCase case_;
  reference::Problem values_;
  std::vector<HeadTensor> k_, k_rope_, v_;
  std::vector<TensorView> k_views_, k_rope_views_, v_views_;
  std::vector<std::vector<int32_t>> pages_;
  HeadTensor q_, q_rope_, out_, lse_;
  Tensor table_, pse_, mask_, sink_;
  Tensor scale_[2], offset_[2];  ///< of keys and of values; combined: the first is for both
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
