#ifndef FA_TOOLS_FA_CASES_SPARSE_DATA_H_
#define FA_TOOLS_FA_CASES_SPARSE_DATA_H_

#include <cstdint>
#include <vector>

#include "cases/sparse_case.h"
#include "check/gradients.h"
#include "check/indexer_row.h"
#include "files/tensors.h"

namespace fa::tool {

/// Returns int32 lists of selected keys for a SparseCase, which are the same in every run. A list has different keys
/// below SparseCase::Limit in random order, and then -1.
[[nodiscard]] Tensor RandomLists(const SparseCase& sparse);

/// Returns pages with the rows of `keys` [B, S2, columns], in the places that `table` gives them.
[[nodiscard]] Tensor InPages(const SparseCase& sparse, const Tensor& keys, int64_t columns, const Tensor& table);

/// Fills `numbers` with random values of a quantised type, times a scale, and `codes` with the codes of the values.
void FillQuantized(DType type, float scale, uint64_t seed, Tensor& numbers, Tensor& codes);

/// The tensors of a SparseCase's attention in memory. Inputs are random and the same in every run.
class SparseAttentionData {
 public:
  explicit SparseAttentionData(const SparseCase& sparse);

  [[nodiscard]] SparseAttentionArgs ForwardArgs();
  /// Runs the forward, then returns the backward's arguments. Throws Failure.
  [[nodiscard]] SparseAttentionGradArgs BackwardArgs(Context& context);
  /// Runs the forward, then sets the arguments of a loss that belong to the attention. Throws Failure.
  void SetLossArgs(Context& context, SparseIndexerLossArgs& args);

  /// Returns the bytes of keys and values. A row counts once for every query that selects it.
  [[nodiscard]] double gathered_bytes() const;

  /// CheckForward and CheckBackward compare some rows with a double-precision computation from the same inputs. Both
  /// throw Failure if an element is wrong.
  void CheckForward() const;
  void CheckBackward() const;

  /// Returns the inputs and statistics of the attention for one query token, from which the loss computes its target.
  /// `token` is numbered over all sequences.
  [[nodiscard]] check::TargetToken Target(int64_t token) const;
  /// Returns the keys that a token selects, numbered within the token's sequence.
  [[nodiscard]] std::vector<int64_t> KeysOf(int64_t token) const;
  [[nodiscard]] TensorView lists() const { return lists_.View(); }

 private:
  void RunForward(Context& context);
  void MakeQuantizedRows();
  [[nodiscard]] check::HeadRows Head(const Tensor& tensor, int64_t batch, int64_t head, int64_t rows, int64_t heads,
                                     int64_t columns) const;
  [[nodiscard]] check::BackwardHead BackwardHead(int64_t batch, int64_t head) const;
  void CheckOutRow(int64_t batch, int64_t head, int64_t row) const;
  void CheckQueryRow(int64_t batch, int64_t head, int64_t row) const;
  void CheckKeyRow(int64_t batch, int64_t key) const;
  [[nodiscard]] bool Selects(int64_t token, int64_t key) const {
    return selected_[static_cast<size_t>(token * case_.s2 + key)];
  }
  [[nodiscard]] double scale() const;

  const SparseCase& case_;
  Tensor lists_;
  std::vector<bool> selected_;  // [token, key]: whether the token selects the key
  Tensor q_, k_, v_, q_rope_, k_rope_, out_, max_, sum_;
  Tensor table_, k_pages_, v_pages_, k_rope_pages_;  // these tensors exist only for calls with pages
  Tensor rows_;                                      // the keys as quantised rows; k_ and k_rope_ have the same numbers
  Tensor whole_q_, whole_k_;  // each row of q_ joined with the same row of q_rope_; likewise for keys
  Tensor d_out_, dq_, dk_, dv_, dq_rope_, dk_rope_;
};

/// The tensors of a SparseCase's indexer in memory. Inputs are random and the same in every run.
class IndexerData {
 public:
  explicit IndexerData(const SparseCase& sparse);

  [[nodiscard]] LightningIndexerArgs ForwardArgs();
  [[nodiscard]] LightningIndexerGradArgs BackwardArgs();
  [[nodiscard]] MsaIndexScoreArgs ScoreArgs();
  /// Sets the arguments of a loss that belong to the indexer.
  void SetLossArgs(SparseIndexerLossArgs& args);
  /// Computes the statistics of the scores and sets them in `args`. Throws Failure.
  void SetStatistics(Context& context, DenseIndexerLossArgs& args);

  void CheckForward() const;
  void CheckBackward() const;
  void CheckScores() const;
  void CheckLoss(const SparseAttentionData& attention) const;

 private:
  void CheckSelection(int64_t token) const;
  void CheckBlocks(int64_t token, int64_t head) const;
  void CheckGradients(int64_t token, const check::IndexerToken& indexer, const check::IndexerRow& row,
                      const check::ScoreGradient& gradient) const;
  [[nodiscard]] check::IndexerToken Token(int64_t token, std::vector<int64_t> keys) const;

  const SparseCase& case_;
  Tensor q_codes_, k_codes_, q_scale_, k_scale_;  // these tensors exist only for quantised calls
  Tensor q_, k_, weights_, lists_, values_, d_values_, dq_, dk_, dweights_, loss_;
  Tensor table_, k_pages_;  // these tensors exist only for calls with pages
  Tensor max_, sum_, score_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_SPARSE_DATA_H_
