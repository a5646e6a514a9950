#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "core/integer.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/check_pages.h"
#include "ops/sparse/bind_shared_kv.h"
#include "ops/token/sparse_tensors.h"

namespace fa::ops {
namespace {

/// Returns the lists of a call during a run.
template <typename Args>
TokenLists ListsIn(const BoundSparse& bound, const SharedKvParts& parts, const Args& args) {
  const auto rows = [](const KeyLists& lists, const TensorView& indices, const TensorView& length,
                       const layout::Rows& of_length) -> KeyListRows {
    return {.lists = lists, .indices = {indices.data, lists.rows}, .lengths = {length.data, of_length}};
  };
  return {rows(bound.lists, args.ori_indices, args.ori_topk_length, parts.ori_topk_length),
          rows(bound.second.lists, args.cmp_indices, args.cmp_topk_length, parts.cmp_topk_length)};
}

Status CheckLengthsOfLists(const char* name, const KeyListRows& rows, const SparseSequences& sequences) {
  if (rows.lengths.data == nullptr) return Status::Ok();
  for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
    for (int64_t t = 0; t < sequences.list[static_cast<size_t>(b)].sq; ++t) {
      const int64_t row = sequences.Row({b, t});
      const int32_t length = *reinterpret_cast<const int32_t*>(rows.lengths.At(b, 0, row));
      if (length >= 0 && length <= rows.lists.entries) continue;
      const std::string batch = sequences.packed ? std::string() : At(b);
      return Status::InvalidArgument(Arg(name, {}, batch + At(row) + At(0)).Is(std::to_string(length)) + ", want 0.." +
                                     std::to_string(rows.lists.entries));
    }
  }
  return Status::Ok();
}

template <typename Args>
Status CheckSharedRun(const BoundSparse& bound, const SharedKvParts& parts, const Args& args) {
  const auto tensors = TensorsOf(args);
  FA_RETURN_IF_ERROR(CheckSparseTensors(tensors, bound.planned));
  const std::span<const int64_t> lengths[] = {args.cu_q,     args.cu_ori,   args.cu_cmp,      args.used_q,
                                              args.used_ori, args.used_cmp, args.cmp_residual};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    FA_RETURN_IF_ERROR(CheckPlannedLengths(parts.lengths[i].first, lengths[i], parts.lengths[i].second));
  }
  const TokenLists lists = ListsIn(bound, parts, args);
  FA_RETURN_IF_ERROR(CheckLengthsOfLists("ori_topk_length", lists.first, bound.sequences));
  FA_RETURN_IF_ERROR(CheckLengthsOfLists("cmp_topk_length", lists.second, bound.sequences));
  if (!bound.check_indices) return Status::Ok();
  if (bound.shared->first_entries >= 0) {
    FA_RETURN_IF_ERROR(CheckKeyLists("ori_indices", lists.first, bound.sequences,
                                     [](const SparseSequence& of) { return of.first(); }));
  }
  if (bound.shared->second_entries < 0) return Status::Ok();
  return CheckKeyLists("cmp_indices", lists.second, bound.sequences,
                       [](const SparseSequence& of) { return of.second; });
}

layout::BlockTable TableOfRange(bool paged, layout::BlockTable table, const void* entries) {
  if (paged) table.entries = static_cast<const int32_t*>(entries);
  return table;
}

layout::BlockTable OriginalTable(const BoundSharedKv& bound, const SharedKvArgs& args) {
  const std::vector<int32_t>& every_page = bound.parts.every_page;
  return TableOfRange(bound.paged, bound.table, every_page.empty() ? args.ori_block_table.data : every_page.data());
}

/// Checks the pages of all keys that tokens may see. Positions of tokens ascend, so the first token sees the first of
/// these keys, and the last token sees the last of them.
Status CheckPagesOfRange(const layout::BlockTable& table, const tiling::SharedKeys& keys,
                         const SparseSequences& sequences, bool second) {
  if (table.entries == nullptr) return Status::Ok();
  for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
    const SparseSequence& of = sequences.list[static_cast<size_t>(b)];
    if (of.sq == 0) continue;
    const int64_t begin = second ? 0 : keys.First(of, 0).begin;
    const int64_t end = second ? keys.SecondEnd(of, of.sq - 1) : keys.First(of, of.sq - 1).end;
    if (begin >= end) continue;
    const tiling::Interval used{begin / table.page_rows, core::CeilDiv(end, table.page_rows)};
    FA_RETURN_IF_ERROR(second ? CheckPages(table, b, used, "cmp_block_table", "cmp_kv")
                              : CheckPages(table, b, used, "ori_block_table", "ori_kv"));
  }
  return Status::Ok();
}

}  // namespace

Status CheckSparseRunArgs(const BoundSharedKv& bound, const SharedKvArgs& args) {
  FA_RETURN_IF_ERROR(CheckSharedRun(bound, bound.parts, args));
  FA_RETURN_IF_ERROR(CheckPagesOfRange(OriginalTable(bound, args), *bound.shared, bound.sequences, /*second=*/false));
  return CheckPagesOfRange(TableOfRange(bound.second.paged, bound.second.table, args.cmp_block_table.data),
                           *bound.shared, bound.sequences, /*second=*/true);
}

Status CheckSparseGradRunArgs(const BoundSharedKvGrad& bound, const SharedKvGradArgs& args) {
  return CheckSharedRun(bound.forward, bound.parts, args);
}

SparseRows RowsOf(const BoundSharedKv& bound, const SharedKvArgs& args) {
  const BoundAttention& attention = bound.attention;
  return {.attention = {.q = {args.q.data, attention.q},
                        .k = {.view = {args.ori_kv.data, bound.k}, .table = OriginalTable(bound, args)},
                        .sink = {args.sink.data, {.head = 1}},
                        .scores = {{.scale = attention.scale}},
                        .out = {args.out.data, attention.out},
                        .lse = {args.lse.data, attention.lse},
                        .selected_keys = attention.selected_keys,
                        .lse_without_keys = attention.lse_without_keys},
          .lists = ListsIn(bound, bound.parts, args),
          .second = {.view = {args.cmp_kv.data, bound.second.k},
                     .table = TableOfRange(bound.second.paged, bound.second.table, args.cmp_block_table.data)}};
}

SparseGradRows RowsOf(const BoundSharedKvGrad& bound, const SharedKvGradArgs& args) {
  const BoundSparse& forward = bound.forward;
  const BoundAttention& attention = forward.attention;
  return {.attention = {.q = {args.q.data, attention.q},
                        .k = {args.ori_kv.data, forward.k},
                        .out = {args.out.data, attention.out},
                        .d_out = {bound.has_gradients ? args.d_out.data : nullptr, bound.d_out},
                        .sink = {args.sink.data, {.head = 1}},
                        .scores = {{.scale = attention.scale}},
                        .dq = {args.dq.data, bound.dq},
                        .dk = {args.d_ori_kv.data, bound.dk},
                        .dsink = {args.dsink.data, {.head = 1}}},
          .lists = ListsIn(forward, bound.parts, args),
          .second = {args.cmp_kv.data, forward.second.k},
          .lse = {args.lse.data, bound.lse},
          .second_dk = {args.d_cmp_kv.data, bound.second_dk},
          .first_mean = {args.ori_l1_norm.data, bound.first_mean.rows},
          .second_mean = {args.cmp_l1_norm.data, bound.second_mean.rows},
          .first_entries = bound.first_mean.entries,
          .second_entries = bound.second_mean.entries};
}

}  // namespace fa::ops
