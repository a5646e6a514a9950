#ifndef FA_TESTS_OPS_INDEXER_RANDOM_INDEXER_CASE_H_
#define FA_TESTS_OPS_INDEXER_RANDOM_INDEXER_CASE_H_

#include <cstdint>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"

namespace fa::test {

/// These functions return valid cases that depend on the arguments alone. Types, layouts, lengths, lists, sizes,
/// strides and addresses are random. Keys of a forward may lie in pages.
[[nodiscard]] IndexerCase RandomIndexerCase(uint64_t seed, bool forward);
[[nodiscard]] LossCase RandomLossCase(uint64_t seed, bool dense);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_RANDOM_INDEXER_CASE_H_
