#include "core/kernels/levels/kernel_level.h"

#define FA_SELECTION "core/kernels/indexer/select_scores.inc"

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec/vec_portable.h"
// These kernels are written in the vocabulary that is included above.
#include "core/kernels/indexer/indexer_kernels.inc"

}  // namespace

const IndexerFunctions& Indexer() noexcept { return kIndexerFunctions; }

}  // namespace fa::core::kernels::portable
