// The proof sees every kind of wrong indexer kernel and names it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/kernels/proof/proof.h"

namespace fa::core {
namespace {

using kernels::IndexerKernels;

/// One way to be wrong.
struct IndexerMistake {
  const char* seen_as;
  void (*make)(IndexerKernels& kernels);
};
const IndexerKernels& RightIndexer() { return kernels::IndexerKernelsFor(Isa::kPortable); }

const IndexerMistake kMistakesOfTheIndexer[] = {
    {"selections of indexer_portable",
     [](IndexerKernels& k) { k.keys_up_to = [](auto /*keys*/, auto n, auto /*last*/) { return n; }; }},
    {"selections of indexer_portable",
     [](IndexerKernels& k) {
       k.order_scores = [](auto scores, auto n, auto keys) {
         RightIndexer().order_scores(scores, n, keys);
         for (int64_t i = 0; i < n; ++i) keys[i] = scores[i] == 0 && std::signbit(scores[i]) ? keys[i] + 1 : keys[i];
       };
     }},
    {"selections of indexer_portable",
     [](IndexerKernels& k) {
       k.bucket_keys = [](auto keys, auto n, auto buckets, auto bucket) {
         kernels::KeyBuckets more = buckets;
         ++more.last;
         RightIndexer().bucket_keys(keys, n, more, bucket);
       };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.add_heads = [](auto s, auto heads, auto width, auto weight, auto /*accumulate*/, auto sum) {
         RightIndexer().add_heads(s, heads, width, weight, false, sum);
       };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.sum_lanes = [](auto s, auto keys, auto width, auto heads, auto weight, auto relu, auto /*accumulate*/,
                        auto sum) { RightIndexer().sum_lanes(s, keys, width, heads, weight, relu, false, sum); };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.sum_lanes = [](auto s, auto keys, auto width, auto heads, auto weight, auto /*relu*/, auto accumulate,
                        auto sum) { RightIndexer().sum_lanes(s, keys, width, heads, weight, true, accumulate, sum); };
     }},
    {"exponentials of indexer_portable",
     [](IndexerKernels& k) {
       k.probabilities = [](auto s, auto keys, auto width, auto factor, auto shift) {
         RightIndexer().probabilities(s, keys - 1, width, factor, shift);
       };
     }},
};

TEST(Proof, MistakesOfTheIndexerAreSeen) {
  EXPECT_EQ(kernels::Disproof(IndexerKernels(RightIndexer()), RightIndexer()), "");
  for (const IndexerMistake& mistake : kMistakesOfTheIndexer) {
    IndexerKernels table = RightIndexer();
    mistake.make(table);
    EXPECT_EQ(kernels::Disproof(table, RightIndexer()), mistake.seen_as);
  }
}

}  // namespace
}  // namespace fa::core
