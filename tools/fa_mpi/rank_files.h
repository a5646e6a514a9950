#ifndef FA_TOOLS_FA_MPI_RANK_FILES_H_
#define FA_TOOLS_FA_MPI_RANK_FILES_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "fa/rank_schedule.h"
#include "fa/tensor.h"
#include "fa_mpi/rank_session.h"
#include "files/input_files.h"
#include "files/output_files.h"
#include "files/output_tensors.h"
#include "npy/npy_rows.h"

namespace fa::tool {

/// The rows of queries and of keys that a rank holds.
struct OwnRows {
  std::vector<npy::RowRange> queries, keys;
  std::vector<npy::RowRange> pairs;  ///< this rank's elements of a TND tensor [N*sum(Sq*Sk)]; set by SetPairs

  explicit OwnRows(const RankSchedule::Rank& rank);
  /// @param cu_q, cu_kv  prefix sums of a call that the library has accepted
  void SetPairs(int64_t heads, std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv);
  [[nodiscard]] const std::vector<npy::RowRange>& Of(const RowAxis& axis) const {
    if (axis.pairs) return pairs;
    return axis.queries ? queries : keys;
  }
  /// Returns the shape of this rank's part of a tensor.
  [[nodiscard]] std::vector<int64_t> Part(std::vector<int64_t> shape, const RowAxis& axis) const;
};

/// A file of which a rank reads its own rows, or all rows if `rows.axis` is -1. The view then describes what was read.
struct RankInput {
  const char* flag;
  TensorView* view;
  RowAxis rows;
};
void ReadOwnRows(const std::vector<RankInput>& inputs, const OwnRows& rows, InputFiles& files);

/// The files that all ranks write together. Each rank writes its own rows. If one rank fails, no file is written. Rank
/// 0 creates and publishes the files, and writes what is not divided among the ranks.
class RankOutputs {
 public:
  /// On rank 0, checks the destinations and throws what OutputFiles::Add throws. Other ranks check nothing.
  RankOutputs(std::vector<OutputSpec> outputs, const RankSession& session);

  /// Sets how an output is divided among the ranks, if that depends on the call.
  void SetRows(const MutableTensorView& output, RowAxis rows);
  /// Makes tensors for this rank's rows, and lets the views of the outputs describe them.
  void Allocate(const OwnRows& rows);
  /// Writes and publishes the files. All ranks must call Commit.
  void Commit(const OwnRows& rows);

 private:
  const RankSession& session_;
  std::vector<OutputSpec> outputs_;
  OutputFiles files_;  ///< the destinations; other ranks than 0 have none
  std::deque<Tensor> tensors_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_MPI_RANK_FILES_H_
