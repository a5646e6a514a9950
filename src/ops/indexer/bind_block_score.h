#ifndef FA_OPS_BIND_BLOCK_SCORE_H_
#define FA_OPS_BIND_BLOCK_SCORE_H_

#include <cstdint>
#include <vector>

#include "fa/msa_index_score.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"
#include "ops/indexer/bind_indexer.h"

namespace fa::ops {

/// The sizes and options of scores of blocks.
struct BlockScoreProblem {
  const IndexerShape& shape;
  const std::vector<int64_t>& start_loc;  ///< per sequence: the block that counts as its tokens' own; or empty
  int64_t columns, init_blocks, local_blocks;
};

/// A validated call for the scores of blocks.
struct BoundBlockScore {
  IndexerShape shape;
  std::vector<int64_t> start_loc;  ///< as the caller gave it
  layout::Rows score;
  int64_t columns = 0, init_blocks = 0, local_blocks = 0;
  bool paged = false;
  layout::BlockTable table;  ///< layout of the pages, without the table's entries
  std::vector<PlannedTensor> planned;

  /// Returns the sizes of the call. The result refers to this object.
  [[nodiscard]] BlockScoreProblem Problem() const { return {shape, start_loc, columns, init_blocks, local_blocks}; }
};

/// The inputs and the scores in a run, with their layouts and addresses.
struct BlockScoreRows {
  IndexerRows in;
  layout::MutableRowsView score;
};

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundBlockScore> BindBlockScore(const MsaIndexScoreArgs& args,
                                                     const MsaIndexScoreOptions& options);

/// Checks in Run that tensors and lengths are the planned ones, that the scores share no element with another tensor,
/// and that every used entry of block_table is a page.
[[nodiscard]] Status CheckIndexerRunArgs(const BoundBlockScore& bound, const MsaIndexScoreArgs& args);

/// Returns the tensors of checked arguments.
[[nodiscard]] BlockScoreRows RowsOf(const BoundBlockScore& bound, const MsaIndexScoreArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_BLOCK_SCORE_H_
