#ifndef FA_TESTS_OPS_SPARSE_SHARED_KV_CASE_H_
#define FA_TESTS_OPS_SPARSE_SHARED_KV_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <vector>

#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "ops/sparse/sparse_case.h"

namespace fa::test {

/// The description of one call of attention over original and compressed keys, forward or backward.
struct SharedKvCase {
  /// Queries and original keys: lengths.sk counts the original keys of each sequence, and `slots` the entries of their
  /// lists. `causal` is not used.
  TokenCase tokens = {};
  std::vector<int64_t> cmp_lengths = {10};  ///< compressed keys of each sequence
  int64_t cmp_slots = 6, cmp_page_rows = 0;
  bool has_ori = true, has_cmp = true;
  bool ori_listed = false, cmp_listed = true;
  bool topk_lengths = false;
  int64_t heads = 2, d = 16;
  int64_t ratio = 4;
  SparseMask ori_mask = SparseMask::kBand, cmp_mask = SparseMask::kRightDownCausal;
  int64_t left = 7, right = 0;
  std::vector<int64_t> residual = {};
  std::optional<float> scale = {};
  bool sink = false;
  float lse_without_keys = -std::numeric_limits<float>::infinity();

  [[nodiscard]] bool lists_ori() const { return has_ori && ori_listed; }
  [[nodiscard]] bool lists_cmp() const { return has_cmp && cmp_listed; }
};

std::ostream& operator<<(std::ostream& out, const SharedKvCase& c);
[[nodiscard]] SharedKvOptions OptionsOf(const SharedKvCase& c);

/// The values of a case, and the same attention as one list of keys per token. In the joined list, the original keys of
/// a sequence stand before its compressed keys. Each token has an entry for every key, or for every entry of its lists.
struct SharedKvValues {
  explicit SharedKvValues(const SharedKvCase& c);

  TokenCase ori, cmp;
  std::vector<int64_t> ori_lists, cmp_lists, ori_topk, cmp_topk;
  SparseCase joined;
  reference::SparseProblem problem;
  int64_t ori_entries = 0;  ///< entries of a joined list that stand for original keys

  /// Returns the rows of the compressed keys if `of_cmp`, otherwise of the original keys. `rows` has the rows of all
  /// keys, with `size` numbers per row.
  [[nodiscard]] std::vector<double> RowsOfRange(const std::vector<double>& rows, int64_t size, bool of_cmp) const;
  /// Returns the entries that stand for compressed keys if `of_cmp`, otherwise for original keys. `entries` has those
  /// of the joined lists.
  [[nodiscard]] std::vector<double> EntriesOfRange(const std::vector<double>& entries, bool of_cmp) const;
};

/// The tensors of a forward call. All elements besides the input values are NaN or invalid indices.
class SharedKvCall {
 public:
  explicit SharedKvCall(const SharedKvCase& c);
  SharedKvCall(const SharedKvCall&) = delete;
  SharedKvCall& operator=(const SharedKvCall&) = delete;

  [[nodiscard]] SharedKvArgs args() const;
  [[nodiscard]] const SharedKvValues& values() const { return values_; }
  [[nodiscard]] SharedKvOptions options() const { return OptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const { return SharedKvAttention(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] std::vector<ExpectedOutput> Expected() const;

 private:
  friend class SharedKvGradCall;
  SharedKvCase case_;
  SharedKvValues values_;
  TokenTensors ori_tensors_, cmp_tensors_;
  RowTensor q_, ori_, cmp_, ori_lists_, cmp_lists_, ori_topk_, cmp_topk_, out_, lse_;
  Tensor sink_;
};

/// The tensors of a backward call. Its forward results come from the reference, rounded as a forward rounds them.
class SharedKvGradCall {
 public:
  /// @param only_l1  whether the call computes the L1 norms alone
  explicit SharedKvGradCall(const SharedKvCase& c, bool only_l1 = false);
  SharedKvGradCall(const SharedKvGradCall&) = delete;
  SharedKvGradCall& operator=(const SharedKvGradCall&) = delete;

  [[nodiscard]] SharedKvGradArgs args() const;
  [[nodiscard]] SharedKvOptions options() const { return forward_.options(); }
  [[nodiscard]] Status Run(Context* context) const { return SharedKvAttentionGrad(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] std::vector<ExpectedOutput> Expected() const;

 private:
  SharedKvCall forward_;
  SparseGradCall reference_;
  bool only_l1_;
  RowTensor d_out_, dq_, d_ori_, d_cmp_, ori_l1_, cmp_l1_;
  Tensor dsink_;
};

/// Runs the case on every level of this machine and compares it with the reference. Only outputs may be written.
[[nodiscard]] ::testing::AssertionResult ForwardIsTheReference(const SharedKvCase& c, int threads = 2);
[[nodiscard]] ::testing::AssertionResult BackwardIsTheReference(const SharedKvCase& c, bool only_l1 = false,
                                                                int threads = 2);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_SPARSE_SHARED_KV_CASE_H_
