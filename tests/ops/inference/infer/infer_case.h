#ifndef FA_TESTS_OPS_INFER_INFER_CASE_H_
#define FA_TESTS_OPS_INFER_INFER_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/infer_attention.h"
#include "support/cases/forward_problem.h"
#include "support/compare/compare.h"

namespace fa::test {

/// Where keys and values lie. The names of pages say the order of their dimensions.
enum class Cache : uint8_t { kOneTensor, kList, kPagesOfRows, kPagesOfHeads, kPagesOfRowsOfHeads, kPagesNz };
[[nodiscard]] constexpr bool IsPaged(Cache cache) { return cache >= Cache::kPagesOfRows; }
[[nodiscard]] const char* Name(Cache cache);

inline constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr Cache kCaches[] = {Cache::kOneTensor,          Cache::kList,
                                    Cache::kPagesOfRows,        Cache::kPagesOfHeads,
                                    Cache::kPagesOfRowsOfHeads, Cache::kPagesNz};
/// The layouts of fused inference that have a batch, and those of packed sequences.
inline constexpr Layout kPaddedLayouts[] = {Layout::kBSH,       Layout::kBSND,      Layout::kBNSD,
                                            Layout::kBNSD_BSND, Layout::kBSH_BNSD,  Layout::kBSND_BNSD,
                                            Layout::kBSH_NBSD,  Layout::kBSND_NBSD, Layout::kBNSD_NBSD};
inline constexpr Layout kPackedLayouts[] = {Layout::kTND, Layout::kNTD, Layout::kTND_NTD, Layout::kNTD_TND};

/// The description of one fused inference. Its numbers are the same in every layout and cache.
struct InferCase {
  /// Sizes, values, options, and the lengths in use. Lengths of keys include the prefix. Mode 1 of the mask stands for
  /// sparse mode 0 of the call.
  ForwardCase dense;
  Layout layout = Layout::kBNSD;
  Cache cache = Cache::kOneTensor;
  int64_t page_rows = 16;
  uint64_t page_order = 1;  ///< the number that determines the random order of the pages
  /// Rows that the tensors have beyond the longest sequence. Packed tensors have them at the end.
  int64_t spare_q = 0, spare_k = 0;
  int64_t padding_q = -1, padding_kv = -1;  ///< rows of left padding; below 0: none
  int64_t prefix_rows = 0, spare_prefix = 0;
  bool tree = false;          ///< whether dense.dense_mask drops pairs of the last Sq keys only, as mode 9 says
  bool full_mask = false;     ///< with modes 2 to 4: whether the call has the triangular mask tensor [2048, 2048]
  bool one_more_dim = false;  ///< whether lse has a last dimension of 1
  DType sink_dtype = DType::kF32;
  float lse_without_keys = std::numeric_limits<float>::infinity();

  [[nodiscard]] bool packed() const;
};

/// Returns a case with one batch element for each of the lengths.
[[nodiscard]] InferCase MakeInferCase(int64_t heads, int64_t heads_kv, std::vector<int64_t> sq, std::vector<int64_t> sk,
                                      DType dtype = DType::kF32);
std::ostream& operator<<(std::ostream& out, const InferCase& c);

/// A tensor whose dimensions are the letters of a layout, such as "BSH". P counts pages, C pieces of a row.
class LetteredTensor {
 public:
  struct Sizes {
    int64_t batch = 1, heads = 1, rows = 1, columns = 1;
  };
  LetteredTensor() = default;
  LetteredTensor(DType dtype, const std::string& letters, Sizes sizes, int64_t gap, Placement placement);

  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t s, int64_t x) const;
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_;
  int64_t batch_ = 0, head_ = 0, row_ = 0, piece_ = 0, piece_columns_ = 0;
};

/// Returns the values of a case. All batch elements have the same prefix.
[[nodiscard]] reference::Problem ValuesOf(const InferCase& c);

/// The tensors of a case, in guarded buffers. Everything outside the elements in use is NaN, a mask element that drops
/// a pair, or the number of a page that does not exist.
class InferProblem {
 public:
  explicit InferProblem(const InferCase& c) : InferProblem(c, ValuesOf(c)) {}
  /// Takes these values instead of the case's.
  InferProblem(const InferCase& c, reference::Problem values);
  InferProblem(const InferProblem&) = delete;
  InferProblem& operator=(const InferProblem&) = delete;

  [[nodiscard]] const InferCase& infer_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] InferAttentionArgs args() const;
  [[nodiscard]] InferAttentionOptions options() const;
  [[nodiscard]] Status Run(Context* context) const { return InferAttention(args(), options(), context); }
  /// Returns the outputs. `tail` has the outputs of all rows that are not in use: lse, then the columns, for each row.
  [[nodiscard]] ForwardOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;
  void SetTableEntry(int64_t b, int64_t page, int32_t value) const;

 private:
  enum class Part : uint8_t { kKey, kRope, kValue };
  void MakeTable();
  void MakeKeys(Part part);
  void MakeQueries();
  void PlacePairs();
  [[nodiscard]] int64_t FirstRow(int64_t b) const;  ///< the row of q in which element b begins
  [[nodiscard]] int64_t FirstKey(int64_t b) const;
  [[nodiscard]] int64_t OwnKeys(int64_t b) const { return case_.dense.lengths.sk[b] - case_.prefix_rows; }
  [[nodiscard]] int64_t RowsOfQ() const;
  [[nodiscard]] int64_t RowsOfK() const;

  InferCase case_;
  reference::Problem values_;
  std::vector<int64_t> cu_q_, cu_kv_, own_keys_, prefix_length_;
  std::vector<std::vector<int32_t>> pages_;
  LetteredTensor q_, q_rope_, out_, lse_, k_prefix_, v_prefix_;
  std::vector<LetteredTensor> k_, k_rope_, v_;
  std::vector<TensorView> k_views_, k_rope_views_, v_views_;
  Tensor table_, pse_, mask_, sink_;
  int64_t padding_q_ = 0, padding_kv_ = 0;
};

/// Runs the case on every level of this machine and compares it with the reference in double. Only the outputs may be
/// written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const InferCase& c);
/// Compares the results of a call with the reference on `problem.values()`.
[[nodiscard]] ::testing::AssertionResult MatchesReference(const InferProblem& problem,
                                                          const reference::ForwardResult& want);
[[nodiscard]] ForwardOutputs OutputsOf(const InferCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFER_INFER_CASE_H_
