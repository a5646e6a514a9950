#ifndef FA_TILING_SPARSE_SEQUENCES_H_
#define FA_TILING_SPARSE_SEQUENCES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fa/sparse_mask.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// The rows in use of one batch element or one packed sequence.
struct SparseSequence {
  int64_t sq = 0, sk = 0;
  int64_t q_offset = 0, k_offset = 0;  ///< TND: first rows of the sequence in the tensors; otherwise 0
  int64_t first_token = 0;             ///< number of tokens of all sequences before it
  /// A key stands for `ratio` tokens. After the tokens of the last key follow `residual` tokens, fewer than `ratio`.
  int64_t ratio = 1, residual = 0;
  /// How many of the sk keys lie in the second tensor. They are numbered after the keys of the first tensor. In TND,
  /// second_offset is the sequence's first row in the second tensor.
  int64_t second = 0, second_offset = 0;
  int64_t positions = 0;  ///< with SharedKeys: the position of the last query token

  [[nodiscard]] int64_t first() const { return sk - second; }  ///< number of keys in the first tensor

  /// Returns how many tokens lie before query token 0. Keys stand for sk * ratio + residual tokens, and the last sq of
  /// these tokens are the queries. The result is negative if there are fewer tokens than queries.
  [[nodiscard]] int64_t Before() const { return sk * ratio + residual - sq; }
  /// Returns the limit of query token t, 0..sk: the token may select the keys below this number.
  [[nodiscard]] int64_t Limit(SparseMask mask, int64_t t) const {
    if (mask == SparseMask::kNone) return sk;
    return std::clamp<int64_t>((Before() + t + 1) / ratio, 0, sk);
  }
};

/// One query token: a row of one sequence.
struct SparseToken {
  int64_t sequence = 0;  ///< number of the sequence, which is also the batch element
  int64_t row = 0;       ///< row within the sequence
};

/// The sequences of a call of the sparse operators. Tokens are numbered in order through all sequences.
struct SparseSequences {
  std::vector<SparseSequence> list;
  SparseMask mask = SparseMask::kRightDownCausal;
  int64_t tokens = 0;
  int64_t max_sk = 0;
  bool packed = false;             ///< whether the layout is TND
  int64_t q_rows = 0, k_rows = 0;  ///< rows of the tensors: S1 and S2, or T; paged keys: rows that the table can name
  int64_t second_rows = 0;         ///< rows of the second tensor of keys
  std::vector<int64_t> lengths_q, lengths_kv, used_q, used_kv, residual_kv;  ///< the lists as the caller gave them

  [[nodiscard]] SparseToken Token(int64_t token) const;
  [[nodiscard]] int64_t Limit(const SparseToken& token) const {
    return list[static_cast<size_t>(token.sequence)].Limit(mask, token.row);
  }
  /// Returns the number of keys of all tokens together if each token's list has `entries` blocks of block_size keys.
  /// For each token it takes the smaller of `entries` * block_size and the token's limit rounded up to whole blocks.
  [[nodiscard]] double SelectableKeys(int64_t entries, int64_t block_size) const;
  /// Returns the token's row in the tensors. The batch element of this row is the token's sequence.
  [[nodiscard]] int64_t Row(const SparseToken& token) const {
    return list[static_cast<size_t>(token.sequence)].q_offset + token.row;
  }

  /// Calls visit(batch element, rows) for the rows of queries that no sequence uses. ForUnusedKeys does the same for
  /// the first tensor of keys, and ForUnusedSecondKeys for the second tensor of keys.
  template <typename Visit>
  void ForUnusedQueries(const Visit& visit) const {
    ForUnused(
        q_rows,
        [](const SparseSequence& of) {
          return Interval{of.q_offset, of.q_offset + of.sq};
        },
        visit);
  }
  template <typename Visit>
  void ForUnusedKeys(const Visit& visit) const {
    ForUnused(
        k_rows,
        [](const SparseSequence& of) {
          return Interval{of.k_offset, of.k_offset + of.first()};
        },
        visit);
  }
  template <typename Visit>
  void ForUnusedSecondKeys(const Visit& visit) const {
    ForUnused(
        second_rows,
        [](const SparseSequence& of) {
          return Interval{of.second_offset, of.second_offset + of.second};
        },
        visit);
  }

 private:
  template <typename RowsOf, typename Visit>
  void ForUnused(int64_t rows, const RowsOf& rows_of, const Visit& visit) const {
    int64_t end = 0;
    for (size_t b = 0; b < list.size(); ++b) {
      const Interval used = rows_of(list[b]);
      if (packed) {
        if (end < used.begin) visit(int64_t{0}, Interval{end, used.begin});
        end = used.end;
      } else if (used.end < rows) {
        visit(static_cast<int64_t>(b), Interval{used.end, rows});
      }
    }
    if (packed && end < rows) visit(int64_t{0}, Interval{end, rows});
  }
};

}  // namespace fa::tiling

#endif  // FA_TILING_SPARSE_SEQUENCES_H_
