#ifndef FA_FLASH_ATTENTION_H_
#define FA_FLASH_ATTENTION_H_

/// @file
/// Dense attention, forward.
/// @code{.cpp}
/// std::vector<float> q(2 * 8 * 128 * 64), k(q), v(q), out(q);
/// const fa::Dims shape = {2, 8, 128, 64};  // [B, N, S, D]
/// fa::AttentionArgs args;
/// args.q = fa::View(q.data(), shape);
/// args.k = fa::View(k.data(), shape);
/// args.v = fa::View(v.data(), shape);
/// args.out = fa::View(out.data(), shape);
/// const fa::Status status = fa::FlashAttention(args, {.mask = fa::Mask::Causal()});
/// if (!status.ok()) std::puts(status.message().c_str());
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/options.h"
#include "fa/pair_mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the dense forward. Shapes are written for BNSD; each tensor has the shape of AttentionOptions::layout. A
/// tensor with null data is absent.
struct AttentionArgs {
  TensorView q;       ///< [B, N, Sq, D]; f32, bf16 or f16
  TensorView k;       ///< [B, Nkv, Sk, D], type of q; N % Nkv == 0
  TensorView v;       ///< [B, Nkv, Sk, Dv], type of q
  TensorView q_rope;  ///< optional, [B, N, Sq, Drope]: scores are Q K^T + Qr Kr^T
  TensorView k_rope;  ///< with q_rope, [B, Nkv, Sk, Drope]
  /// The bias, of the type of q or f32. With pse types 0 and 1 it is [B|1, N, Sq, Sk] or [B|1, N, 1, Sk]. If Sq = Sk >
  /// 1024 and the mask is causal, it may be compressed to [B|1, N, 1024, Sk]. With TND it is flat N * sum(Sq_b * Sk_b),
  /// flat N * sum(Sk_b), or [B|1, N, 1024, maxSk]. With pse types 2 and 3 it holds slopes, f32 [N] or [B, N].
  TensorView pse;
  /// The dense mask, u8, bool or i8; a value other than 0 drops the pair. Its shape is [Sq,Sk], [1,1,Sq,Sk],
  /// [B,1,Sq,Sk] or [B,N,Sq,Sk]; with TND it is [maxSq,maxSk].
  TensorView dense_mask;
  /// Instead of dense_mask: a mask that the caller keeps, [B|1, N|Nkv|1, 1|Sq, Sk]; with TND B is the number of
  /// sequences, and the sizes are maxSq and maxSk. It must outlive the call. A plan takes any mask of its shape.
  const PairMask* pair_mask = nullptr;
  TensorView drop_mask;  ///< u8 bits, LSB first, 1 = keep, without gaps over [B,N,Sq,Sk]; >= ceil(bits / 8) bytes
  /// f32 [N], or one per row [B|1,N,Sq] (TND: [T,N]), any strides: the score of a virtual key whose value is 0.
  TensorView sink;
  std::span<const int64_t> cu_q;  ///< TND: inclusive prefix sums of query lengths; a leading 0 is an empty sequence
  /// TND: inclusive prefix sums of the key lengths, with as many entries as cu_q. There are no gaps between sequences.
  /// To leave keys out, such as padding, use Mask::Rows.
  std::span<const int64_t> cu_kv;
  MutableTensorView out;          ///< [B, N, Sq, Dv], type of q
  MutableTensorView softmax_max;  ///< optional, maximum of each row's scores, f32 [B, N, Sq] (TND [T, N]), natural log
  MutableTensorView softmax_sum;  ///< optional, f32 in the shape of softmax_max; the sum before dropout
  /// Optional, f32 of the shape of softmax_max: the log-sum-exp max + ln(sum), or -inf for a row without keys. The
  /// backward does not read it.
  MutableTensorView lse;
};

/// Computes out = dropout(softmax(mask(score))) V with score = scale * Q K^T and the biases of AttentionOptions.
///
/// A row without keys gives out = 0, max = -FLT_MAX and sum = +FLT_MAX. If Sk = 0, such a row gives max = 0 and sum =
/// 0. With a sink it gives max = sink and sum = 1. A masked pair has probability exactly 0, whatever K, V or pse hold
/// there. TND rows past the last prefix sum are written 0 in every output. Inner products, softmax and output are
/// accumulated in f32 and rounded once.
///
/// Inputs may alias each other. An output must not share memory with another tensor, and no two of its elements may
/// share memory.
/// @return kInvalidArgument ("k.shape[2]=5, want 7 (q.shape[2])") or kOutOfMemory. After an error nothing was written.
/// The function is re-entrant. The bits do not depend on the number of threads, the batch or the layout. The algorithm
/// is FlashAttention-2 (Dao 2023), section 3.1, with transposed scores.
FA_API Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, Context* context = nullptr);

/// Plans a call of FlashAttention: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present (data != nullptr), but never their contents.
FA_API Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                         Context* context = nullptr);

/// Writes the first `bits` bits of the drop_mask that drops the same pairs as options.dropout = state does. Their order
/// is the order of AttentionArgs::drop_mask. The unused bits of the last byte are 0.
/// @param mask  u8, at least ceil(bits / 8) bytes
FA_API Status GenerateDropoutMask(PhiloxState state, float keep_prob, int64_t bits, std::span<uint8_t> mask,
                                  Context* context = nullptr);

}  // namespace fa

#endif  // FA_FLASH_ATTENTION_H_
