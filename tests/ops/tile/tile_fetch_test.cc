// Tests which cache lines are fetched ahead for the tiles of short sequences.

#include "ops/tile/tile_fetch.h"

#include <set>

#include "ops/bind/bind_call.h"
#include "ops/bind/bind_grad_call.h"

namespace fa::test {
namespace {

/// Adds the address of every 8 bytes of a tensor's rows.
void AddRows(const void* data, const layout::Rows& rows, int64_t columns, int64_t batch, int64_t head, int64_t heads,
             tiling::Interval range, std::set<const void*>& bytes) {
  for (int64_t n = head; n < head + heads; ++n) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const auto* at = static_cast<const char*>(data) + 4 * rows.Offset(batch, n, row);
      for (int64_t i = 0; i < 4 * columns; i += 8) bytes.insert(at + i);
    }
  }
}

/// Returns the addresses of every 8 bytes that a list fetches. No address may occur twice.
std::set<const void*> Listed(const ops::TileFetch& fetch) {
  std::set<const void*> bytes;
  const core::kernels::FetchList list = fetch.list();
  for (const auto* run = list.run; run != list.end; ++run) {
    for (const char* at = run->begin; at < run->end; at += 8) EXPECT_TRUE(bytes.insert(at).second);
  }
  return bytes;
}

/// Returns the shape of two sequences with seven queries and nine keys each.
CallShape ShapeOf(Layout layout) {
  if (layout != Layout::kTND) return {.layout = layout};
  return {.layout = layout, .sq = 14, .sk = 18, .cu_q = {7, 14}, .cu_kv = {9, 18}};
}
/// Returns where `rows` of the second sequence lie. In packed layouts they follow the rows of the first sequence.
tiling::Interval OfSecond(Layout layout, tiling::Interval rows, int64_t rows_of_first) {
  const int64_t before = layout == Layout::kTND ? rows_of_first : 0;
  return {before + rows.begin, before + rows.end};
}

constexpr Layout kLayouts[] = {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND};

constexpr tiling::ForwardItem kItem{
    .sequence = 0, .head_kv = 1, .head_begin = 2, .heads = 2, .row_begin = 3, .row_end = 7, .keys = {0, 9}};

TEST(TileFetch, ListsTheRowsOfThisOutputAndOfTheNextTilesInputsInEveryLayout) {
  for (const Layout layout : kLayouts) {
    const CallShape shape = ShapeOf(layout);
    const BindCall call(shape);
    const auto bound = call.Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    tiling::ForwardItem next = kItem;
    next.sequence = 1;
    next.head_kv = 0;
    next.head_begin = 0;
    ops::TileFetch fetch;
    fetch.List(bound->problem, ops::RowsOf(*bound, call.args), 160, kItem, &next);
    const tiling::Interval rows = OfSecond(layout, {3, 7}, 7), keys = OfSecond(layout, {0, 9}, 9);
    std::set<const void*> want;
    AddRows(call.args.out.data, bound->out, shape.dv, 0, 2, 2, {3, 7}, want);
    AddRows(call.args.q.data, bound->q, shape.d, 1, 0, 2, rows, want);
    AddRows(call.args.k.data, bound->k, shape.d, 1, 0, 1, keys, want);
    AddRows(call.args.v.data, bound->v, shape.dv, 1, 0, 1, keys, want);
    EXPECT_EQ(Listed(fetch), want) << Name(layout);
  }
}

TEST(TileFetch, ListsNoKeysTwiceForTilesOfOneHead) {
  const BindCall call;
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  tiling::ForwardItem next = kItem;
  next.row_begin = 0;
  next.row_end = 3;
  ops::TileFetch fetch;
  fetch.List(bound->problem, ops::RowsOf(*bound, call.args), 160, kItem, &next);
  std::set<const void*> want;
  AddRows(call.args.out.data, bound->out, 8, 0, 2, 2, {3, 7}, want);
  AddRows(call.args.q.data, bound->q, 16, 0, 2, 2, {0, 3}, want);
  EXPECT_EQ(Listed(fetch), want);
}

TEST(TileFetch, ListsOneBlockOfALongSequence) {
  const BindCall call({.sk = 1000});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  tiling::ForwardItem next = kItem;
  next.head_kv = 2;
  next.head_begin = 4;
  next.keys = {40, 1000};
  ops::TileFetch fetch;
  fetch.List(bound->problem, ops::RowsOf(*bound, call.args), 160, kItem, &next);
  std::set<const void*> want;
  AddRows(call.args.out.data, bound->out, 8, 0, 2, 2, {3, 7}, want);
  AddRows(call.args.q.data, bound->q, 16, 0, 4, 2, {3, 7}, want);
  AddRows(call.args.k.data, bound->k, 16, 0, 2, 1, {40, 200}, want);
  AddRows(call.args.v.data, bound->v, 8, 0, 2, 1, {40, 200}, want);
  EXPECT_EQ(Listed(fetch), want);
}

TEST(TileFetch, LeavesOutWhatItHasNoRoomFor) {
  constexpr int64_t kMost = ops::TileFetch::kMaxRuns;
  const BindCall call({.layout = Layout::kBSND, .sq = kMost});
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok());
  tiling::ForwardItem item = kItem;
  item.row_begin = 0;
  item.row_end = kMost;
  ops::TileFetch fetch;
  fetch.List(bound->problem, ops::RowsOf(*bound, call.args), 160, item, &item);
  const core::kernels::FetchList list = fetch.list();
  EXPECT_EQ(list.end - list.run, kMost);
  std::set<const void*> output;
  AddRows(call.args.out.data, bound->out, 8, 0, 2, 2, {0, kMost}, output);
  for (const void* at : Listed(fetch)) EXPECT_TRUE(output.contains(at));
}

constexpr tiling::BackwardItem kTile{
    .sequence = 0, .head_kv = 1, .head = 2, .row_begin = 3, .row_end = 7, .key_begin = 0, .key_end = 9};

TEST(TileFetch, ListsTheRowsThatTheNextTileOfTheBackwardPacks) {
  for (const Layout layout : kLayouts) {
    const GradCall call(ShapeOf(layout));
    const auto bound = call.Bind();
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    tiling::BackwardItem next = kTile;
    next.sequence = 1;
    next.head_kv = 0;
    next.head = 1;
    const tiling::Interval rows = OfSecond(layout, {3, 7}, 7), keys = OfSecond(layout, {0, 9}, 9);
    ops::TileFetch fetch;
    // Rows of q and k have 64 bytes, and rows of d_out, out and v have 32 bytes. Only in BNSD do a head's rows lie next
    // to each other, so that two rows of 32 bytes share a line.
    const bool by_heads = layout == Layout::kBNSD;
    const int64_t lines = by_heads ? 4 + 2 + 2 + 9 + 5 : 4 + 4 + 4 + 9 + 9, bytes = 64 * lines;
    fetch.List(bound->forward.problem, ops::RowsOf(*bound, call.args), kTile, next, bytes);
    EXPECT_EQ(fetch.lines(), lines) << Name(layout);
    std::set<const void*> want;
    AddRows(call.args.q.data, bound->forward.q, 16, 1, 1, 1, rows, want);
    AddRows(call.args.d_out.data, bound->d_out, 8, 1, 1, 1, rows, want);
    AddRows(call.args.out.data, bound->forward.out, 8, 1, 1, 1, rows, want);
    const std::set<const void*> of_queries = want;
    AddRows(call.args.k.data, bound->forward.k, 16, 1, 0, 1, keys, want);
    AddRows(call.args.v.data, bound->forward.v, 8, 1, 0, 1, keys, want);
    EXPECT_EQ(Listed(fetch), want) << Name(layout);
    ops::TileFetch same_keys;
    same_keys.List(bound->forward.problem, ops::RowsOf(*bound, call.args), next, next, bytes);
    EXPECT_EQ(Listed(same_keys), of_queries) << Name(layout);
    ops::TileFetch too_much;
    too_much.List(bound->forward.problem, ops::RowsOf(*bound, call.args), kTile, next, bytes - 1);
    EXPECT_EQ(too_much.lines(), 0) << Name(layout);
  }
}

TEST(TileFetch, ListsRopePartsOfTheBackward) {
  BindCall forward;
  forward.args.q_rope = BindCall::Tensor(DType::kF32, {2, 6, 7, 4});
  forward.args.k_rope = BindCall::Tensor(DType::kF32, {2, 3, 9, 4});
  const GradCall call(forward);
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  tiling::BackwardItem next = kTile;
  next.sequence = 1;
  ops::TileFetch fetch;
  fetch.List(bound->forward.problem, ops::RowsOf(*bound, call.args), kTile, next, 1 << 20);
  std::set<const void*> want;
  AddRows(call.args.q.data, bound->forward.q, 16, 1, 2, 1, {3, 7}, want);
  AddRows(call.args.q_rope.data, bound->forward.q_rope, 4, 1, 2, 1, {3, 7}, want);
  AddRows(call.args.d_out.data, bound->d_out, 8, 1, 2, 1, {3, 7}, want);
  AddRows(call.args.out.data, bound->forward.out, 8, 1, 2, 1, {3, 7}, want);
  AddRows(call.args.k.data, bound->forward.k, 16, 1, 1, 1, {0, 9}, want);
  AddRows(call.args.k_rope.data, bound->forward.k_rope, 4, 1, 1, 1, {0, 9}, want);
  AddRows(call.args.v.data, bound->forward.v, 8, 1, 1, 1, {0, 9}, want);
  EXPECT_EQ(Listed(fetch), want);
}

// In BSND a head's rows are not contiguous, so each row is a run of its own.
TEST(TileFetch, HasRoomForTheLargestTileOfTheBackward) {
  constexpr int64_t kRows = tiling::kMaxBlockQ, kKeys = tiling::kMaxColumnKeys;
  BindCall forward({.layout = Layout::kBSND, .sq = kRows, .sk = kKeys, .d = 64, .dv = 64});
  forward.args.q_rope = BindCall::Tensor(DType::kF32, {2, kRows, 6, 4});
  forward.args.k_rope = BindCall::Tensor(DType::kF32, {2, kKeys, 3, 4});
  const GradCall call(forward);
  const auto bound = call.Bind();
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  tiling::BackwardItem item = kTile, next = kTile;
  item.sequence = 1;
  next.row_begin = 0;
  next.row_end = kRows;
  next.key_end = kKeys;
  ops::TileFetch fetch;
  fetch.List(bound->forward.problem, ops::RowsOf(*bound, call.args), item, next, 1 << 20);
  const core::kernels::FetchList list = fetch.list();
  EXPECT_EQ(list.end - list.run, 4 * kRows + 3 * kKeys);
  std::set<const void*> values;
  AddRows(call.args.v.data, bound->forward.v, 64, 0, 1, 1, {0, kKeys}, values);
  const std::set<const void*> listed = Listed(fetch);
  for (const void* at : values) ASSERT_TRUE(listed.contains(at));
}

}  // namespace
}  // namespace fa::test
