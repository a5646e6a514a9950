#include <algorithm>
#include <string>

#include "core/integer.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/check_pages.h"
#include "ops/inference/bind_decode.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

Status CheckList(const char* list, std::span<const TensorView> tensors, std::span<const PlannedTensor> planned) {
  if (tensors.size() != planned.size()) {
    return Status::InvalidArgument(Arg(list).Has(std::to_string(tensors.size())) + " tensors, want " +
                                   std::to_string(planned.size()) + " (as planned)");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Status status = CheckPlanned(KeyTensor(list, tensors[i]), planned[i]);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

/// Checks one output against all other tensors of the call.
Status CheckApartFromAll(const BoundDecode& bound, const DecodeAttentionArgs& args, size_t output) {
  const auto tensors = TensorsOf(args);
  const auto check = [&](const CallTensor& other, const PlannedTensor& planned) {
    return CheckApart(tensors[output], bound.planned[output], other, planned);
  };
  for (size_t i = 0; i < output; ++i) {
    if (Status status = check(tensors[i], bound.planned[i]); !status.ok()) return status;
  }
  for (size_t i = 0; i < args.k.size(); ++i) {
    if (Status status = check(KeyTensor("k", args.k[i]), bound.planned_k[i]); !status.ok()) return status;
    if (Status status = check(KeyTensor("v", args.v[i]), bound.planned_v[i]); !status.ok()) return status;
  }
  return Status::Ok();
}

/// The pages that a tile or a pack of keys may read.
tiling::Interval UsedPages(const tiling::Sequence& sequence, int64_t page_rows) {
  if (sequence.sq == 0) return {};
  const tiling::Interval keys = sequence.rule.KeysOfRows({0, sequence.sq});
  if (keys.empty()) return {};
  const int64_t begin = keys.begin / kKeyStep * kKeyStep;
  const int64_t end = std::min(core::RoundUp(keys.end, kKeyStep), sequence.sk);
  return {begin / page_rows, core::CeilDiv(end, page_rows)};
}

Status CheckBlockTable(const BoundDecode& bound, const TensorView& block_table) {
  const auto& sequences = bound.attention.problem.sequences;
  layout::BlockTable table = bound.storage.table;
  table.entries = static_cast<const int32_t*>(block_table.data);
  for (size_t b = 0; b < sequences.size(); ++b) {
    Status status = CheckPages(table, static_cast<int64_t>(b), UsedPages(sequences[b], table.page_rows));
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace

Status CheckDecodeRunArgs(const BoundDecode& bound, const DecodeAttentionArgs& args) {
  const auto tensors = TensorsOf(args);
  if (Status status = CheckAllPlanned(tensors, bound.planned); !status.ok()) return status;
  if (Status status = CheckList("k", args.k, bound.planned_k); !status.ok()) return status;
  if (Status status = CheckList("v", args.v, bound.planned_v); !status.ok()) return status;
  if (Status status = CheckPlannedLengths("lengths_q", args.lengths_q, bound.lengths_q); !status.ok()) return status;
  if (Status status = CheckPlannedLengths("lengths_kv", args.lengths_kv, bound.lengths_kv); !status.ok()) return status;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].output) continue;
    if (Status status = CheckApartFromAll(bound, args, i); !status.ok()) return status;
  }
  return bound.storage.paged() ? CheckBlockTable(bound, args.block_table) : Status::Ok();
}

}  // namespace fa::ops
