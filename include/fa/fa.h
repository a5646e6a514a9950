#ifndef FA_FA_H_
#define FA_FA_H_

/// @file
/// Includes all headers of fa except fa/mpi.h.
/// @code{.cpp}
/// #include "fa/fa.h"
///
/// int main() {
///   std::vector<float> q(8 * 128 * 64, 1.0F), out(q.size());
///   fa::AttentionArgs args;
///   args.q = args.k = args.v = fa::View(q, {1, 8, 128, 64});  // [B, N, S, D]
///   args.out = fa::View(out, {1, 8, 128, 64});
///   const fa::Status status = fa::FlashAttention(args, {.mask = fa::Mask::Causal()});
///   if (!status.ok()) std::puts(status.message().c_str());
/// }
/// @endcode

// The build makes fa/export.h, so this folder alone is not enough: use the headers of an installed fa, or link the
// CMake target fa::fa.
#include "fa/block_mask.h"
#include "fa/context.h"
#include "fa/error_text.h"
#include "fa/half.h"
#include "fa/indexer_kl_loss.h"
#include "fa/mask.h"
#include "fa/msa_index_score.h"
#include "fa/operators.h"
#include "fa/options.h"
#include "fa/overlap.h"
#include "fa/pair_mask.h"
#include "fa/plan.h"
#include "fa/plan_info.h"
#include "fa/rank_schedule.h"
#include "fa/ranked_attention.h"
#include "fa/sequence_shards.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "fa/transport.h"
#include "fa/version.h"
#include "fa/view.h"
#include "fa/workspace.h"

#endif  // FA_FA_H_
