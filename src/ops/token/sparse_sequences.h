#ifndef FA_OPS_SPARSE_SEQUENCES_H_
#define FA_OPS_SPARSE_SEQUENCES_H_

#include <cstdint>
#include <span>

#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/bind/planned_tensors.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::ops {

using tiling::SparseSequence;
using tiling::SparseSequences;
using tiling::SparseToken;

/// The arguments from which the sequences of a call are made.
struct SparseLengths {
  Layout layout = Layout::kBSND;  ///< BSND or TND
  bool paged = false;             ///< whether keys lie in pages
  int64_t batch = 0;              ///< number of batch elements, for BSND
  int64_t q_rows = 0, k_rows = 0;
  std::span<const int64_t> lengths_q = {}, lengths_kv = {};
  /// The rows in use of each packed sequence; empty: all. `residual_kv` has SparseSequence::residual of each sequence;
  /// empty: 0.
  std::span<const int64_t> used_q = {}, used_kv = {}, residual_kv = {};
  int64_t ratio = 1;  ///< SparseSequence::ratio
  SparseMask mask = SparseMask::kRightDownCausal;
  const char *q_name = "q", *k_name = "k";  ///< names of the tensors that have q_rows and k_rows rows
  /// Names of lengths_q, of lengths_kv and of the table of the keys' pages.
  const char *lengths_q_name = "lengths_q", *lengths_kv_name = "lengths_kv", *table_name = "block_table";
};

/// Checks lengths_q, lengths_kv and the mask, and makes the sequences from them.
[[nodiscard]] Result<SparseSequences> BindSparseSequences(const SparseLengths& lengths);

/// Checks in Run that the lengths of the call, such as lengths_q and used_q, are the planned lengths.
template <typename Args>
[[nodiscard]] Status CheckSparseLengths(const SparseSequences& planned, const Args& args) {
  FA_RETURN_IF_ERROR(CheckPlannedLengths("lengths_q", args.lengths_q, planned.lengths_q));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("lengths_kv", args.lengths_kv, planned.lengths_kv));
  if constexpr (requires { args.residual_kv; }) {
    FA_RETURN_IF_ERROR(CheckPlannedLengths("used_q", args.used_q, planned.used_q));
    FA_RETURN_IF_ERROR(CheckPlannedLengths("used_kv", args.used_kv, planned.used_kv));
    FA_RETURN_IF_ERROR(CheckPlannedLengths("residual_kv", args.residual_kv, planned.residual_kv));
  }
  return Status::Ok();
}

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_SEQUENCES_H_
