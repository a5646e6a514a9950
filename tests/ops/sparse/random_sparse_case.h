#ifndef FA_TESTS_OPS_SPARSE_RANDOM_SPARSE_CASE_H_
#define FA_TESTS_OPS_SPARSE_RANDOM_SPARSE_CASE_H_

#include <cstdint>

#include "ops/sparse/sparse_case.h"

namespace fa::test {

/// Returns a valid case that depends on the seed alone. It may have any type, layout, lengths, lists, sizes, strides
/// and address.
[[nodiscard]] SparseCase RandomSparseCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_SPARSE_RANDOM_SPARSE_CASE_H_
