#include "ops/token/sparse_sequences.h"

#include <algorithm>
#include <string>

#include "core/saturating.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/prefix_sums.h"
#include "ops/plan/plan_machine.h"

namespace fa::ops {
namespace {

// Tokens, and parts of tokens, are tasks, and task ids have 32 bits.
constexpr int64_t kMaxTokens = int64_t{1} << 30;

struct Side {
  const char* name;
  ErrorText rows_name;  // the argument that gives `rows`
  std::span<const int64_t> lengths;
  int64_t rows;
};

Status Missing(const Side& side, const Words& want) {
  return Status::InvalidArgument(Arg(side.name).Says("missing, want ") + want.text);
}

Status TooManyTokens(const char* name, int64_t tokens) {
  return Status::InvalidArgument(Arg(name).Says(std::to_string(tokens)) + " tokens or more in use, want at most " +
                                 std::to_string(kMaxTokens));
}

Status CheckSums(const Side& side) {
  // A usual mistake is to give lengths instead of prefix sums. CheckPrefixSums does not recognise ascending lengths as
  // this mistake.
  int64_t sum = 0;
  bool overflow = false;
  for (const int64_t length : side.lengths) overflow = overflow || __builtin_add_overflow(sum, length, &sum);
  if (!side.lengths.empty() && side.lengths.back() != side.rows && !overflow && sum == side.rows) {
    return Status::InvalidArgument(EntryOf(side.name, side.lengths, side.lengths.size() - 1) + ", want " +
                                   std::to_string(side.rows) + " (" + side.rows_name +
                                   "): looks like per-batch lengths, want inclusive prefix sums");
  }
  return CheckPrefixSums(side.name, side.lengths, side.rows, side.rows_name);
}

Status CheckLengths(const Side& side, int64_t batch) {
  if (side.lengths.empty()) return Status::Ok();
  if (static_cast<int64_t>(side.lengths.size()) != batch) {
    return Status::InvalidArgument(Arg(side.name).Has(std::to_string(side.lengths.size())) + " entries, want " +
                                   std::to_string(batch) + " (batch)");
  }
  for (size_t i = 0; i < side.lengths.size(); ++i) {
    if (side.lengths[i] >= 0 && side.lengths[i] <= side.rows) continue;
    return Status::InvalidArgument(EntryOf(side.name, side.lengths, i) + ", want 0.." + std::to_string(side.rows) +
                                   " (" + side.rows_name + ")");
  }
  return Status::Ok();
}

/// Checks used_q or used_kv, and applies it to the lengths of the bound sequences.
Status ApplyUsed(const char* name, std::span<const int64_t> used, bool sums, const char* lengths,
                 int64_t SparseSequence::*length, SparseSequences& bound) {
  if (used.empty()) return Status::Ok();
  if (!sums) {
    return Status::InvalidArgument(Arg(name).Says("given, want none: rows are not packed, use ") + Arg(lengths));
  }
  FA_RETURN_IF_ERROR(CheckNumbers(
      name, used, std::ssize(bound.list), [&](size_t i) { return bound.list[i].*length; }, " (" + Arg(lengths) + ")"));
  for (size_t i = 0; i < used.size(); ++i) bound.list[i].*length = used[i];
  return Status::Ok();
}

/// Checks the compression ratio and the residuals, and stores both in the sequences.
Status ApplyRatio(const SparseLengths& lengths, SparseSequences& bound) {
  constexpr int64_t kMostRatio = int64_t{1} << 20;
  if (lengths.ratio < 1 || lengths.ratio > kMostRatio) {
    return Status::InvalidArgument(Arg("cmp_ratio").Is(std::to_string(lengths.ratio)) + ", want 1.." +
                                   std::to_string(kMostRatio));
  }
  FA_RETURN_IF_ERROR(CheckNumbers(
      "residual_kv", lengths.residual_kv, std::ssize(bound.list), [&](size_t) { return lengths.ratio - 1; },
      " (" + Arg("cmp_ratio") + " - 1)"));
  for (size_t i = 0; i < bound.list.size(); ++i) {
    bound.list[i].ratio = lengths.ratio;
    if (!lengths.residual_kv.empty()) bound.list[i].residual = lengths.residual_kv[i];
  }
  return Status::Ok();
}

// Checks the number of batch elements, and the number of tokens if all rows are in use. The check runs before the list
// of sequences is made.
Status CheckCount(const SparseLengths& lengths, int64_t count, const Side& q) {
  const ErrorText batch = Arg(lengths.paged ? lengths.table_name : lengths.q_name, ".shape", At(0));
  FA_RETURN_IF_ERROR(CheckSequenceCount(batch, count, 1));
  const int64_t tokens = q.lengths.empty() ? core::SaturatedProduct(count, q.rows) : 0;
  return tokens <= kMaxTokens ? Status::Ok() : TooManyTokens(lengths.q_name, tokens);
}

}  // namespace

Result<SparseSequences> BindSparseSequences(const SparseLengths& lengths) {
  const bool packed = lengths.layout == Layout::kTND;
  const std::string rows = At(packed ? 0 : 1);
  const Side q{lengths.lengths_q_name, Arg(lengths.q_name, ".shape", rows), lengths.lengths_q, lengths.q_rows};
  const Side kv{
      lengths.lengths_kv_name,
      lengths.paged ? Arg(lengths.table_name, ".shape", At(1)) + " pages" : Arg(lengths.k_name, ".shape", rows),
      lengths.lengths_kv, lengths.k_rows};
  if (lengths.mask != SparseMask::kNone && lengths.mask != SparseMask::kRightDownCausal) {
    return Status::InvalidArgument(Arg("mask").Is(std::to_string(static_cast<int>(lengths.mask))) +
                                   ", want none (0) or right-down causal (3)");
  }
  FA_RETURN_IF_ERROR(packed ? CheckSums(q) : CheckLengths(q, lengths.batch));
  const bool sums = packed && !lengths.paged;
  const auto count = packed ? static_cast<int64_t>(lengths.lengths_q.size()) : lengths.batch;
  if (sums) {
    FA_RETURN_IF_ERROR(CheckSums(kv));
    if (kv.lengths.size() != q.lengths.size()) {
      return Status::InvalidArgument(Arg(lengths.lengths_kv_name).Has(std::to_string(kv.lengths.size())) +
                                     " entries, want " + std::to_string(q.lengths.size()) + " (" +
                                     Arg(lengths.lengths_q_name) + ")");
    }
  } else {
    if (lengths.paged && kv.lengths.empty() && count > 0) return Missing(kv, "the lengths of paged keys");
    FA_RETURN_IF_ERROR(CheckLengths(kv, count));
  }

  FA_RETURN_IF_ERROR(CheckCount(lengths, count, q));

  SparseSequences bound;
  bound.mask = lengths.mask;
  bound.packed = packed;
  bound.q_rows = lengths.q_rows;
  bound.k_rows = lengths.k_rows;
  bound.lengths_q.assign(lengths.lengths_q.begin(), lengths.lengths_q.end());
  bound.lengths_kv.assign(lengths.lengths_kv.begin(), lengths.lengths_kv.end());
  bound.used_q.assign(lengths.used_q.begin(), lengths.used_q.end());
  bound.used_kv.assign(lengths.used_kv.begin(), lengths.used_kv.end());
  bound.residual_kv.assign(lengths.residual_kv.begin(), lengths.residual_kv.end());
  for (int64_t b = 0; b < count; ++b) {
    const auto i = static_cast<size_t>(b);
    const auto of = [&](const Side& side, bool prefix, int64_t* offset) {
      if (side.lengths.empty()) return side.rows;
      *offset = prefix && i > 0 ? side.lengths[i - 1] : 0;
      return side.lengths[i] - *offset;
    };
    SparseSequence sequence;
    sequence.sq = of(q, packed, &sequence.q_offset);
    sequence.sk = of(kv, sums, &sequence.k_offset);
    bound.list.push_back(sequence);
  }
  FA_RETURN_IF_ERROR(ApplyUsed("used_q", lengths.used_q, packed, "lengths_q", &SparseSequence::sq, bound));
  FA_RETURN_IF_ERROR(ApplyUsed("used_kv", lengths.used_kv, sums, "lengths_kv", &SparseSequence::sk, bound));
  FA_RETURN_IF_ERROR(ApplyRatio(lengths, bound));
  for (int64_t b = 0; b < count; ++b) {
    SparseSequence& sequence = bound.list[static_cast<size_t>(b)];
    sequence.first_token = bound.tokens;
    FA_RETURN_IF_ERROR(CheckKeyCount(lengths.k_name, b, sequence.sk));
    bound.tokens += sequence.sq;
    bound.max_sk = std::max(bound.max_sk, sequence.sk);
    if (bound.tokens > kMaxTokens) return TooManyTokens(lengths.q_name, bound.tokens);
  }
  return bound;
}

}  // namespace fa::ops
