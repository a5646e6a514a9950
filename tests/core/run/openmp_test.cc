// Built with -fopenmp: calls from inside a parallel region of OpenMP, whose threads oneTBB does not know.

#include <gtest/gtest.h>
#include <omp.h>

#include "core/context_impl.h"
#include "core/run/context_calls.h"

namespace fa::core {
namespace {

TEST(OpenMp, EveryThreadOfARegionMayCall) {
  Context::Impl context({.workers = 3}, test::FourCores());
  int faults = 0, threads = 0;
#pragma omp parallel for num_threads(4) schedule(static) reduction(+ : faults) reduction(max : threads)
  for (int call = 0; call < 80; ++call) {
    threads = omp_get_num_threads();
    faults += test::FaultsOfOneCall(context, static_cast<uint64_t>(call));
  }
  EXPECT_EQ(faults, 0);
  EXPECT_EQ(threads, 4);  // the region was parallel
}

}  // namespace
}  // namespace fa::core
