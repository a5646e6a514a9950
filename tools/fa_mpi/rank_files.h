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
  std::vector<npy::RowRange> pairs;  ///< of packed sequences; SetPairs

  explicit OwnRows(const RankSchedule::Rank& rank);
  /// @param cu_q, cu_kv  prefix sums of a call that the library has found right
  void SetPairs(int64_t heads, std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv);
  [[nodiscard]] const std::vector<npy::RowRange>& Of(const RowAxis& axis) const {
    if (axis.pairs) return pairs;
    return axis.queries ? queries : keys;
  }
  /// The shape of this rank's part of a tensor.
  [[nodiscard]] std::vector<int64_t> Part(std::vector<int64_t> shape, const RowAxis& axis) const;
};

/// One file that a rank reads its rows of; RowAxis -1: all of it. The view becomes the rank's part.
struct RankInput {
  const char* flag;
  TensorView* view;
  RowAxis rows;
};
void ReadOwnRows(const std::vector<RankInput>& inputs, const OwnRows& rows, InputFiles& files);

/// The files that all ranks write together: each its own rows, all files or none. Rank 0 makes them, gives them their
/// names, and writes what is no rank's alone.
class RankOutputs {
 public:
  /// Checks the destinations, on rank 0. Throws as OutputFiles::Add; on other ranks nothing.
  RankOutputs(std::vector<OutputSpec> outputs, const RankSession& session);

  /// Says which rows of an output are a rank's own, where that depends on the call.
  void SetRows(const MutableTensorView& output, RowAxis rows);
  /// The tensors of this rank's rows, in the views of the outputs.
  void Allocate(const OwnRows& rows);
  /// Collective.
  void Commit(const OwnRows& rows);

 private:
  const RankSession& session_;
  std::vector<OutputSpec> outputs_;
  OutputFiles files_;  ///< rank 0's: destinations
  std::deque<Tensor> tensors_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_MPI_RANK_FILES_H_
