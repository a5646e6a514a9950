#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_SELECTION "core/kernels/indexer/select_scores.inc"

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/indexer/indexer_kernels.inc"

}  // namespace

const IndexerFunctions& Indexer() noexcept { return kIndexerFunctions; }

}  // namespace fa::core::kernels::neon
