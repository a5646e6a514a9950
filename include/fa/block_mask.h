#ifndef FA_BLOCK_MASK_H_
#define FA_BLOCK_MASK_H_

/// @file
/// Block-sparse attention, in which a mask has one decision per block of query rows and keys.
/// @code{.cpp}
/// // 8 heads; blocks of 64 rows and 128 keys. The call computes the kept blocks only.
/// std::vector<float> q(8 * 4096 * 64), out(q), lse(8 * 4096), one{1}, d_out(q), dq(q), dk(q), dv(q);
/// const std::vector<uint8_t> keep(8 * 64 * 32, 1);
/// const auto mask = fa::PairMaskFromBlocks(fa::View(keep, {1, 8, 64, 32}),
///                                          {.rows = 4096, .keys = 4096, .block_rows = 64, .block_keys = 128});
/// if (!mask.ok()) return mask.status();
/// const auto heads = [](auto& values) { return fa::View(values.data(), {1, 8, 4096, 64}); };
/// const fa::TensorView k = heads(q), v = heads(q);
/// fa::InferAttentionArgs args;
/// args.q = heads(q), args.k = {&k, 1}, args.v = {&v, 1}, args.out = heads(out);
/// args.lse = fa::View(lse.data(), {1, 8, 4096});
/// args.pair_mask = &*mask;
/// const fa::Status forward = fa::InferAttention(args, {});
/// if (!forward.ok()) return forward;
/// // The backward takes the lse as the maximum, with a sum of 1.
/// fa::AttentionGradArgs grads;
/// grads.q = heads(q), grads.k = k, grads.v = v, grads.out = heads(out), grads.d_out = heads(d_out);
/// grads.softmax_max = fa::View(lse.data(), {1, 8, 4096});
/// grads.softmax_sum = {one.data(), fa::DType::kF32, {1, 8, 4096}, {0, 0, 0}};
/// grads.pair_mask = &*mask;
/// grads.dq = heads(dq), grads.dk = heads(dk), grads.dv = heads(dv);
/// return fa::FlashAttentionGrad(grads, {});
/// @endcode

#include "fa/context.h"
#include "fa/export.h"
#include "fa/pair_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Makes a mask from blocks. Row i and key j are kept if blocks[b][n][i / block_rows][j / block_keys] is not 0. Blocks
/// may have any sizes; the last ones may be shorter. To save memory, groups of neighbouring rows share their bits.
/// The number of rows in a group is the largest power of two, up to 128, that divides block_rows.
///
/// Every call that takes a PairMask accepts the mask, in every layout. InferAttention allows lengths per batch element,
/// and returns an lse of +inf for rows without keys. For packed sequences, `rows` and `keys` are those of the longest
/// sequence, and B is the number of sequences. FlashAttentionGrad takes an infinite lse for rows without keys.
/// @param blocks  u8, bool or i8 [B|1, N|Nkv|1, ceil(rows / block_rows), ceil(keys / block_keys)], or its last two
///                dimensions
/// @return kInvalidArgument ("blocks.shape[3]=5, want 4 (keys)") or kOutOfMemory. It follows BlockSparseAttention of
/// CANN, without that operator's limits of sizes.
FA_API Result<PairMask> PairMaskFromBlocks(const TensorView& blocks, const PairLists& sizes,
                                           Context* context = nullptr);

}  // namespace fa

#endif  // FA_BLOCK_MASK_H_
