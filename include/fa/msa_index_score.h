#ifndef FA_MSA_INDEX_SCORE_H_
#define FA_MSA_INDEX_SCORE_H_

/// @file
/// The scores of blocks of keys from which MiniMax-M3 selects blocks, per query token and head.
/// @code{.cpp}
/// std::vector<float> q(64 * 4 * 128), k(1024 * 128), score(4 * 64 * 16);
/// const int64_t lengths_q[] = {64}, lengths_kv[] = {1024};
/// return fa::MsaIndexScore({.q = fa::View(q.data(), {64, 4, 128}),
///                           .k = fa::View(k.data(), {1024, 1, 128}),
///                           .lengths_q = lengths_q,
///                           .lengths_kv = lengths_kv,
///                           .score = fa::View(score.data(), {4, 64, 16})},
///                          {.init_blocks = 1, .local_blocks = 1});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// The number of keys of a block of MsaIndexScore.
inline constexpr int64_t kMsaBlockSize = 128;

/// Tensors of the scores. Queries are packed: T1 is the number of query tokens of all sequences together. A tensor with
/// null data is absent.
struct MsaIndexScoreArgs {
  TensorView q;  ///< [T1, N1, D]; f32, bf16, f16 or f8e4m3
  /// [T2, 1, D], type of q, or i8 with k_scale; with block_table, pages of any size: [blocks, page size, 1, D]
  TensorView k;
  /// Given exactly for k of i8: any float type, [T2] or [T2, 1]; with block_table [blocks, page size] or [blocks, page
  /// size, 1]. Any strides are taken.
  TensorView k_scale = {};
  TensorView block_table = {};  ///< optional, i32 [B, n]: key j lies in page block_table[b][j / page size]
  /// Inclusive prefix sums of the numbers of rows; a leading 0 is an empty first sequence. For keys in pages,
  /// lengths_kv has one length per sequence instead.
  std::span<const int64_t> lengths_q, lengths_kv;
  /// Optional, one number per sequence: the block of keys that counts as the own block of all its query tokens. By
  /// default the own block of token t is (max(keys - query tokens, 0) + t) / 128, rounded down.
  std::span<const int64_t> start_loc = {};
  MutableTensorView score;  ///< f32 [N1, T1, C], where C is at least the number of blocks of the longest sequence
};

/// The options of the scores.
struct MsaIndexScoreOptions {
  SparseMask mask = SparseMask::kRightDownCausal;  ///< which keys a query token sees
  int64_t init_blocks = 0;                         ///< number of first blocks that are always selected
  int64_t local_blocks = 0;  ///< number of blocks, ending with the token's own, that are always selected
};

/// Writes for head n, query token t of a sequence and block c of 128 of its keys
///   score[n][t][c] = max of q[t][n] . k[s] over the keys s of the block that the token sees
/// in f32, or -inf if it sees none. With k_scale, each product is multiplied by k_scale[s] first. Then blocks c <
/// init_blocks get 1e30. If the token's own block is loc, blocks loc - local_blocks + 1 to loc get 1e29, even if they
/// have 1e30. Columns past the sequence's last block, and rows past the last sequence, are -inf. A NaN among the
/// products makes its block NaN, and -0 becomes +0. The bits do not depend on the number of threads, the other rows or
/// pages.
/// @return kInvalidArgument with the argument's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows MsaIndexScore of vLLM's plugin for Ascend.
FA_API Status MsaIndexScore(const MsaIndexScoreArgs& args, const MsaIndexScoreOptions& options,
                            Context* context = nullptr);

/// Plans a call of MsaIndexScore: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<MsaIndexScoreArgs>> PlanMsaIndexScore(const MsaIndexScoreArgs& args,
                                                            const MsaIndexScoreOptions& options,
                                                            Context* context = nullptr);

}  // namespace fa

#endif  // FA_MSA_INDEX_SCORE_H_
