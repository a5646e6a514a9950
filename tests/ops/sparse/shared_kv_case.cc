#include "ops/sparse/shared_kv_case.h"

#include <algorithm>
#include <cmath>

#include "ops/sparse/sparse_expectation.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Returns how many entries of each list are read.
std::vector<int64_t> DrawTopkLengths(const TokenCase& c) {
  std::vector<int64_t> lengths;
  for (int64_t token = 0; token < reference::Selection{.lengths = c.lengths}.tokens(); ++token) {
    const uint64_t bits = RandomBits(c.seed, Tag::kChoice, {token, c.slots});
    lengths.push_back(static_cast<int64_t>(bits % static_cast<uint64_t>(c.slots + 1)));
  }
  return lengths;
}

/// Appends the entries of a joined list that stand for one range: the original or the compressed keys. An entry without
/// a key becomes `nothing`.
/// @param first  the number of the range's first key among all keys
void AppendList(const std::vector<int64_t>& lists, int64_t token, int64_t slots, int64_t read, int64_t limit,
                int64_t first, int64_t nothing, std::vector<int64_t>* to) {
  bool ended = false;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int64_t key = lists[token * slots + slot];
    ended = ended || slot >= read || key == -1;
    to->push_back(ended || key < 0 || key >= limit ? nothing : first + key);
  }
}
void AppendKeys(int64_t begin, int64_t end, int64_t entries, int64_t first, int64_t nothing, std::vector<int64_t>* to) {
  for (int64_t key = 0; key < entries; ++key) to->push_back(key >= begin && key < end ? first + key : nothing);
}

int64_t Longest(const std::vector<int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

template <typename Call>
AssertionResult IsTheReferenceOnEveryLevel(const Call& call, const SharedKvCase& c, int threads) {
  const std::vector<ExpectedOutput> expected = call.Expected();
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = call.TakeSnapshot();
    before.Forget();
    const Status status = call.Run(ContextOf(isa, threads));
    AssertionResult matches =
        status.ok() ? MatchesExpected(call.Outputs(), expected) : AssertionFailure() << status.message();
    if (matches && before.FirstChange() >= 0) {
      matches = AssertionFailure() << "byte " << before.FirstChange() << " of a buffer was overwritten";
    }
    if (!matches) return matches << "\n " << IsaName(isa) << " " << c;
  }
  return AssertionSuccess();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const SharedKvCase& c) {
  out << c.tokens << " compressed";
  for (const int64_t length : c.cmp_lengths) out << ' ' << length;
  out << " slots " << c.cmp_slots << " has " << c.has_ori << c.has_cmp << " lists " << c.ori_listed << c.cmp_listed
      << " topk " << c.topk_lengths << " heads " << c.heads << " of " << c.d << " ratio " << c.ratio << " masks "
      << static_cast<int>(c.ori_mask) << static_cast<int>(c.cmp_mask) << " window " << c.left << "," << c.right;
  if (c.cmp_page_rows != 0) out << " compressed pages " << c.cmp_page_rows;
  if (c.sink) out << " sink";
  return out;
}

SharedKvOptions OptionsOf(const SharedKvCase& c) {
  return {.layout = c.tokens.layout,
          .scale = c.scale,
          .cmp_ratio = c.ratio,
          .ori_mask = c.lists_ori() ? SparseMask::kNone : c.ori_mask,
          .cmp_mask = c.cmp_mask,
          .window_left = c.left,
          .window_right = c.right,
          .lse_without_keys = c.lse_without_keys};
}

SharedKvValues::SharedKvValues(const SharedKvCase& c) : ori(c.tokens), cmp(c.tokens) {
  ori.causal = cmp.causal = false;
  cmp.lengths.sk = c.cmp_lengths;
  cmp.slots = c.cmp_slots;
  cmp.page_rows = c.cmp_page_rows;
  cmp.seed += 1;
  if (!c.has_ori) ori.lengths.sk.assign(ori.lengths.sk.size(), 0);
  if (!c.has_cmp) cmp.lengths.sk.assign(cmp.lengths.sk.size(), 0);
  ori_lists = MakeSelection(ori).indices;
  cmp_lists = MakeSelection(cmp).indices;
  ori_topk = DrawTopkLengths(ori);
  cmp_topk = DrawTopkLengths(cmp);
  ori_entries = c.lists_ori() ? ori.slots : Longest(ori.lengths.sk);
  const int64_t cmp_entries = c.lists_cmp() ? cmp.slots : Longest(cmp.lengths.sk);

  joined.tokens = c.tokens;
  joined.tokens.causal = false;
  joined.tokens.page_rows = 0;
  for (size_t b = 0; b < ori.lengths.sk.size(); ++b) {
    joined.tokens.lengths.sk[b] = ori.lengths.sk[b] + cmp.lengths.sk[b];
  }
  joined.tokens.slots = ori_entries + cmp_entries;
  joined.heads = c.heads;
  joined.d = joined.dv = c.d;
  joined.merged = true;
  joined.scale = c.scale;
  joined.lse = true;
  joined.sink = c.sink;
  problem = MakeReferenceProblem(joined);
  problem.selection.whole = true;
  std::vector<int64_t>& lists = problem.selection.indices;
  lists.clear();
  int64_t token = 0;
  for (size_t b = 0; b < ori.lengths.sk.size(); ++b) {
    const int64_t keys = ori.lengths.sk[b], compressed = cmp.lengths.sk[b], nothing = keys + compressed;
    const int64_t end = c.has_ori ? keys : compressed * c.ratio + (c.residual.empty() ? 0 : c.residual[b]);
    for (int64_t t = 0; t < ori.lengths.sq[b]; ++t, ++token) {
      const int64_t position = end - ori.lengths.sq[b] + t + 1;
      if (c.lists_ori()) {
        AppendList(ori_lists, token, ori.slots, c.topk_lengths ? ori_topk[token] : ori.slots, keys, 0, nothing, &lists);
      } else {
        int64_t from = 0, to = keys;
        if (c.ori_mask == SparseMask::kRightDownCausal) to = position;
        if (c.ori_mask == SparseMask::kBand) {
          from = c.left < 0 ? 0 : position - c.left - 1;
          to = c.right < 0 ? keys : position + c.right;
        }
        AppendKeys(from, std::min(to, keys), ori_entries, 0, nothing, &lists);
      }
      const int64_t seen = position > 0 ? position / c.ratio : 0;
      const int64_t limit = c.cmp_mask == SparseMask::kNone ? compressed : std::min(seen, compressed);
      if (c.lists_cmp()) {
        AppendList(cmp_lists, token, cmp.slots, c.topk_lengths ? cmp_topk[token] : cmp.slots, limit, keys, nothing,
                   &lists);
      } else {
        AppendKeys(0, limit, cmp_entries, keys, nothing, &lists);
      }
    }
  }
}

std::vector<double> SharedKvValues::RowsOfRange(const std::vector<double>& rows, int64_t size, bool of_cmp) const {
  std::vector<double> range;
  auto at = rows.begin();
  for (size_t b = 0; b < ori.lengths.sk.size(); ++b) {
    const int64_t before = ori.lengths.sk[b] * size, after = cmp.lengths.sk[b] * size;
    range.insert(range.end(), at + (of_cmp ? before : 0), at + before + (of_cmp ? after : 0));
    at += before + after;
  }
  return range;
}

std::vector<double> SharedKvValues::EntriesOfRange(const std::vector<double>& entries, bool of_cmp) const {
  std::vector<double> range;
  const int64_t slots = joined.tokens.slots;
  for (auto at = entries.begin(); at != entries.end(); at += slots) {
    range.insert(range.end(), of_cmp ? at + ori_entries : at, of_cmp ? at + slots : at + ori_entries);
  }
  return range;
}

SharedKvCall::SharedKvCall(const SharedKvCase& c)
    : case_(c), values_(c), ori_tensors_(values_.ori), cmp_tensors_(values_.cmp) {
  const DType dtype = c.tokens.dtype;
  const reference::SparseProblem& p = values_.problem;
  q_ = ori_tensors_.MakeQuerySide(dtype, c.heads, c.d);
  ori_tensors_.FillQueries(p.q, q_);
  const auto fill = [&](const TokenTensors& tensors, bool of_cmp, bool listed, const std::vector<int64_t>& lists,
                        const std::vector<int64_t>& topk, RowTensor* kv, RowTensor* list, RowTensor* length) {
    *kv = tensors.MakeKeySide(dtype, 1, c.d);
    tensors.FillKeys(values_.RowsOfRange(p.k, c.d, of_cmp), *kv);
    if (!listed) return;
    *list = tensors.MakeLists(lists);
    if (!c.topk_lengths) return;
    *length = tensors.MakeFlatQuerySide(DType::kI32, 1);
    tensors.FillQueries(std::vector<double>(topk.begin(), topk.end()), *length);
  };
  if (c.has_ori) {
    fill(ori_tensors_, false, c.ori_listed, values_.ori_lists, values_.ori_topk, &ori_, &ori_lists_, &ori_topk_);
  }
  if (c.has_cmp) {
    fill(cmp_tensors_, true, c.cmp_listed, values_.cmp_lists, values_.cmp_topk, &cmp_, &cmp_lists_, &cmp_topk_);
  }
  if (c.sink) {
    sink_ = Tensor(DType::kF32, {c.heads}, {}, c.tokens.placement);
    for (int64_t n = 0; n < c.heads; ++n) sink_.Set(n, p.sink[n]);
  }
  out_ = ori_tensors_.MakeQuerySide(dtype, c.heads, c.d);
  lse_ = ori_tensors_.MakeStatistic(1, c.heads);
}

SharedKvArgs SharedKvCall::args() const {
  SharedKvArgs args;
  args.q = q_.tensor.view();
  args.ori_kv = ori_.tensor.view();
  args.cmp_kv = cmp_.tensor.view();
  args.ori_indices = ori_lists_.tensor.view();
  args.cmp_indices = cmp_lists_.tensor.view();
  args.ori_topk_length = ori_topk_.tensor.view();
  args.cmp_topk_length = cmp_topk_.tensor.view();
  if (case_.has_ori) args.ori_block_table = ori_tensors_.block_table().view();
  if (case_.has_cmp) args.cmp_block_table = cmp_tensors_.block_table().view();
  args.sink = sink_.view();
  const bool packed = case_.tokens.packed();
  (packed ? args.cu_q : args.used_q) = ori_tensors_.lengths_q();
  if (case_.has_ori) (packed && !values_.ori.paged() ? args.cu_ori : args.used_ori) = ori_tensors_.lengths_kv();
  if (case_.has_cmp) (packed && !values_.cmp.paged() ? args.cu_cmp : args.used_cmp) = cmp_tensors_.lengths_kv();
  args.cmp_residual = case_.residual;
  args.out = out_.tensor.mutable_view();
  args.lse = lse_.tensor.mutable_view();
  return args;
}

TokenOutputs SharedKvCall::Outputs() const {
  const bool infinite = case_.lse_without_keys > 0;
  return {{"out", ori_tensors_.Queries(out_)},
          {"lse", ori_tensors_.Queries(lse_), infinite ? std::numeric_limits<double>::infinity() : 0}};
}

Snapshot SharedKvCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &ori_, &cmp_, &ori_lists_, &cmp_lists_, &ori_topk_, &cmp_topk_}) {
    snapshot.Add(input->tensor);
  }
  snapshot.Add(ori_tensors_.block_table());
  snapshot.Add(cmp_tensors_.block_table());
  snapshot.Add(sink_);
  for (const RowTensor* output : {&out_, &lse_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

std::vector<ExpectedOutput> SharedKvCall::Expected() const {
  SparseCase forward = values_.joined;
  forward.head_mean = false;
  std::vector<ExpectedOutput> expected = ExpectForward(SparseCall(forward, values_.problem));
  for (double& want : expected.at(1).want) {
    if (std::isinf(want)) want = case_.lse_without_keys;
  }
  return expected;
}

SharedKvGradCall::SharedKvGradCall(const SharedKvCase& c, bool only_l1)
    : forward_(c), reference_(forward_.values_.joined, forward_.values_.problem), only_l1_(only_l1) {
  const DType dtype = c.tokens.dtype;
  const TokenTensors &ori = forward_.ori_tensors_, &cmp = forward_.cmp_tensors_;
  const reference::SparseResult& results = reference_.forward();
  std::vector<double> lse = results.max;
  for (size_t row = 0; row < lse.size(); ++row) {
    // Both infinities stand for a row without keys.
    const double infinity = std::numeric_limits<double>::infinity();
    if (results.sum[row] == 0) lse[row] = row % 2 == 0 ? infinity : -infinity;
  }
  ori.FillQueries(lse, forward_.lse_);
  ori.FillQueries(results.out, forward_.out_);
  if (c.lists_ori()) ori_l1_ = ori.MakeQuerySide(DType::kF32, 1, c.tokens.slots);
  if (c.lists_cmp()) cmp_l1_ = ori.MakeQuerySide(DType::kF32, 1, c.cmp_slots);
  if (only_l1) return;
  d_out_ = ori.MakeQuerySide(dtype, c.heads, c.d);
  ori.FillQueries(reference_.d_out(), d_out_);
  dq_ = ori.MakeQuerySide(dtype, c.heads, c.d);
  if (c.has_ori) d_ori_ = ori.MakeKeySide(dtype, 1, c.d);
  if (c.has_cmp) d_cmp_ = cmp.MakeKeySide(dtype, 1, c.d);
  if (c.sink) dsink_ = Tensor(DType::kF32, {c.heads}, {}, c.tokens.placement);
}

SharedKvGradArgs SharedKvGradCall::args() const {
  const SharedKvArgs forward = forward_.args();
  SharedKvGradArgs args;
  args.q = forward.q;
  args.ori_kv = forward.ori_kv;
  args.cmp_kv = forward.cmp_kv;
  args.ori_indices = forward.ori_indices;
  args.cmp_indices = forward.cmp_indices;
  args.ori_topk_length = forward.ori_topk_length;
  args.cmp_topk_length = forward.cmp_topk_length;
  args.sink = forward.sink;
  args.cu_q = forward.cu_q;
  args.cu_ori = forward.cu_ori;
  args.cu_cmp = forward.cu_cmp;
  args.used_q = forward.used_q;
  args.used_ori = forward.used_ori;
  args.used_cmp = forward.used_cmp;
  args.cmp_residual = forward.cmp_residual;
  args.lse = forward_.lse_.tensor.view();
  if (!only_l1_) args.out = forward_.out_.tensor.view();
  args.d_out = d_out_.tensor.view();
  args.dq = dq_.tensor.mutable_view();
  args.d_ori_kv = d_ori_.tensor.mutable_view();
  args.d_cmp_kv = d_cmp_.tensor.mutable_view();
  args.dsink = dsink_.mutable_view();
  args.ori_l1_norm = ori_l1_.tensor.mutable_view();
  args.cmp_l1_norm = cmp_l1_.tensor.mutable_view();
  return args;
}

TokenOutputs SharedKvGradCall::Outputs() const {
  const TokenTensors &ori = forward_.ori_tensors_, &cmp = forward_.cmp_tensors_;
  TokenOutputs outputs;
  if (!ori_l1_.tensor.absent()) outputs.push_back({"ori_l1_norm", ori.Queries(ori_l1_)});
  if (!cmp_l1_.tensor.absent()) outputs.push_back({"cmp_l1_norm", ori.Queries(cmp_l1_)});
  if (only_l1_) return outputs;
  outputs.push_back({"dq", ori.Queries(dq_)});
  if (!d_ori_.tensor.absent()) outputs.push_back({"d_ori_kv", ori.Keys(d_ori_)});
  if (!d_cmp_.tensor.absent()) outputs.push_back({"d_cmp_kv", cmp.Keys(d_cmp_)});
  if (dsink_.absent()) return outputs;
  RowValues dsink;
  for (int64_t n = 0; n < forward_.case_.heads; ++n) dsink.values.push_back(dsink_.Get(n));
  outputs.push_back({"dsink", std::move(dsink)});
  return outputs;
}

Snapshot SharedKvGradCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  const SharedKvCall& f = forward_;
  for (const RowTensor* input :
       {&f.q_, &f.ori_, &f.cmp_, &f.ori_lists_, &f.cmp_lists_, &f.ori_topk_, &f.cmp_topk_, &f.out_, &f.lse_, &d_out_}) {
    snapshot.Add(input->tensor);
  }
  snapshot.Add(f.sink_);
  snapshot.Add(dsink_);
  if (outputs_may_change) snapshot.Allow(dsink_);
  for (const RowTensor* output : {&dq_, &d_ori_, &d_cmp_, &ori_l1_, &cmp_l1_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

std::vector<ExpectedOutput> SharedKvGradCall::Expected() const {
  const SharedKvValues& values = forward_.values_;
  const int64_t d = forward_.case_.d;
  std::vector<ExpectedOutput> expected;
  const std::vector<ExpectedOutput> means = ExpectForward(SparseCall(values.joined, values.problem));
  for (const bool of_cmp : {false, true}) {
    if ((of_cmp ? cmp_l1_ : ori_l1_).tensor.absent()) continue;
    const ExpectedOutput& mean = means.back();
    expected.push_back({of_cmp ? "cmp_l1_norm" : "ori_l1_norm", values.EntriesOfRange(mean.want, of_cmp),
                        values.EntriesOfRange(mean.allowed, of_cmp)});
  }
  if (only_l1_) return expected;
  for (ExpectedOutput& line : ExpectBackward(reference_)) {
    if (line.name != "dk") {
      expected.push_back(std::move(line));
      continue;
    }
    for (const bool of_cmp : {false, true}) {
      if ((of_cmp ? d_cmp_ : d_ori_).tensor.absent()) continue;
      expected.push_back({of_cmp ? "d_cmp_kv" : "d_ori_kv", values.RowsOfRange(line.want, d, of_cmp),
                          values.RowsOfRange(line.allowed, d, of_cmp)});
    }
  }
  return expected;
}

AssertionResult ForwardIsTheReference(const SharedKvCase& c, int threads) {
  return IsTheReferenceOnEveryLevel(SharedKvCall(c), c, threads);
}

AssertionResult BackwardIsTheReference(const SharedKvCase& c, bool only_l1, int threads) {
  return IsTheReferenceOnEveryLevel(SharedKvGradCall(c, only_l1), c, threads);
}

}  // namespace fa::test
