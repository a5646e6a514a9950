// Attention over the ranks of a process group of torch.distributed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "fa/mask.h"
#include "fa/ranked_attention.h"
#include "fa/sequence_shards.h"
#include "group_transport.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

SequenceShards::Cut CutOf(const std::string& name) {
  if (name == "contiguous") return SequenceShards::Cut::kContiguous;
  if (name == "zigzag") return SequenceShards::Cut::kZigzag;
  Raise(Status::InvalidArgument(Arg("shards.cut").Is("\"" + name + "\"") + ", want contiguous, zigzag or intervals"));
  return {};
}

SequenceShards::Strategy StrategyOf(const std::string& name) {
  if (name == "auto") return SequenceShards::Strategy::kAuto;
  if (name == "heads") return SequenceShards::Strategy::kHeads;
  if (name == "sequence") return SequenceShards::Strategy::kSequence;
  Raise(Status::InvalidArgument(Arg("shards.strategy").Is("\"" + name + "\"") + ", want one of auto, heads, sequence"));
  return {};
}

/// @param cut  the name of a cut, or "intervals" if `intervals` has the intervals of each rank
SequenceShards MakeShards(const std::string& cut, const std::vector<Intervals>& intervals, int64_t sq, int64_t sk,
                          const std::string& strategy) {
  SequenceShards shards;
  shards.cut = cut == "intervals" ? SequenceShards::Cut::kIntervals : CutOf(cut);
  shards.sq = sq;
  shards.sk = sk;
  shards.strategy = StrategyOf(strategy);
  for (const Intervals& of_rank : intervals) {
    auto& list = shards.intervals.emplace_back();
    for (const auto& [begin, end] : of_rank) list.push_back({begin, end});
  }
  return shards;
}

Intervals HeldBy(const SequenceShards& shards, int64_t rows, int rank, int ranks) {
  const auto held = RowsHeld(shards, rows, rank, ranks);
  Raise(held.status());
  Intervals intervals;
  for (const SequenceShards::Interval& interval : *held) intervals.emplace_back(interval.begin, interval.end);
  return intervals;
}

constexpr auto PlanForward = [](const AttentionArgs& args, const AttentionOptions& options,
                                const SequenceShards& shards, std::shared_ptr<Transport> transport, Context* context) {
  return PlanFlashAttention(args, options, shards, std::move(transport), context);
};

constexpr auto PlanBackward = [](const AttentionGradArgs& args, const AttentionOptions& options,
                                 const SequenceShards& shards, std::shared_ptr<Transport> transport, Context* context) {
  return PlanFlashAttentionGrad(args, options, shards, std::move(transport), context);
};

/// The bytes of tensors that a run has sent and received, and then the bytes that its plan predicts for both.
using MovedBytes = std::tuple<int64_t, int64_t, int64_t, int64_t>;

/// Returns whether the mask's sparse mode takes a compressed mask tensor, which has a fixed size. Such a tensor is
/// checked and then dropped, because `mask` itself says which keys each row keeps.
bool IsCompressed(const Mask& mask) {
  return mask.sparse_mode() >= 2 && mask.sparse_mode() <= 8 && mask.sparse_mode() != 5;
}

/// One rank's part of a call over ranks. The constructor does everything that may fail on one rank alone.
template <typename Args, auto fill, auto plan>
class RankedCall {
 public:
  RankedCall(nb::dict arrays, const AttentionOptions& options, Lengths cu_q, Lengths cu_kv, Context* context)
      : arrays_(std::move(arrays)),
        options_(options),
        cu_q_(std::move(cu_q)),
        cu_kv_(std::move(cu_kv)),
        context_(context) {
    args_ = fill(arrays_, options_, cu_q_, cu_kv_);
    if (arrays_.incomplete()) {
      RunUnlocked([&] { return arrays_.Complete(); });
      args_ = fill(arrays_, options_, cu_q_, cu_kv_);
    }
    if (args_.dense_mask.data != nullptr && IsCompressed(options_.mask)) {
      RunUnlocked([&] { return VerifyCompressedMask(args_.dense_mask, options_.mask.sparse_mode()); });
      args_.dense_mask = {};
    }
  }
  RankedCall(const RankedCall&) = delete;
  RankedCall& operator=(const RankedCall&) = delete;

  /// Runs the call, on all ranks together. If `dropout` is given, it replaces the seed and offset of the options. An
  /// error is raised as an exception, whose cause is the group's exception if there is one.
  MovedBytes Run(const SequenceShards& shards, nb::object group, int first_tag,
                 const std::optional<std::pair<uint64_t, uint64_t>>& dropout) {
    if (dropout) options_.dropout = PhiloxState{dropout->first, dropout->second};
    const auto transport = std::make_shared<GroupTransport>(std::move(group), first_tag);
    Status status;
    MovedBytes moved;
    {
      const nb::gil_scoped_release release;
      const auto planned = plan(args_, options_, shards, transport, context_);
      status = planned.ok() ? planned->Run(args_) : planned.status();
      if (status.ok()) moved = Moved(*planned, *transport);
    }
    if (status.ok()) return moved;
    const nb::object cause = transport->raised();
    // an exception such as KeyboardInterrupt is raised itself, not as the cause of an error
    if (!cause.is_none() && !nb::isinstance(cause, nb::handle(PyExc_Exception))) {
      PyErr_SetObject(cause.type().ptr(), cause.ptr());
      throw nb::python_error();
    }
    try {
      Raise(status);
    } catch (nb::python_error& error) {
      if (!cause.is_none()) nb::setattr(error.value(), "__cause__", cause);
      throw;
    }
    return moved;
  }

 private:
  static MovedBytes Moved(const Plan& planned, const Transport& transport) {
    const RanksInfo of_ranks = planned.info().ranks.value();
    const auto rank = static_cast<size_t>(transport.rank());
    return {transport.traffic().sent_bytes, transport.traffic().received_bytes, of_ranks.sent_bytes[rank],
            of_ranks.received_bytes[rank]};
  }

  CallArrays arrays_;
  AttentionOptions options_;
  Lengths cu_q_, cu_kv_;
  Context* context_;
  Args args_;
};

template <typename Call>
void BindRankedCall(nb::module_& module, const char* name) {
  nb::class_<Call>(module, name)
      .def(nb::init<nb::dict, const AttentionOptions&, Lengths, Lengths, Context*>(), "arrays"_a, "options"_a,
           "lengths_q"_a, "lengths_kv"_a, "context"_a.none(), nb::keep_alive<1, 6>())
      .def("run", &Call::Run, "shards"_a, "group"_a, "first_tag"_a, "dropout"_a.none());
}

}  // namespace

void BindRanks(nb::module_& module) {
  nb::class_<SequenceShards>(module, "Shards")
      .def(nb::new_(&MakeShards), nb::kw_only(), "cut"_a, "intervals"_a, "sq"_a, "sk"_a, "strategy"_a)
      .def("rows_held", &HeldBy, "rows"_a, "rank"_a, "ranks"_a);
  module.def(
      "ranked_call_tags", [] { return GroupTransport::kTags; }, "Tags of messages that a call has for itself.");
  BindRankedCall<RankedCall<AttentionArgs, ForwardArgs, PlanForward>>(module, "RankedForward");
  BindRankedCall<RankedCall<AttentionGradArgs, BackwardArgs, PlanBackward>>(module, "RankedBackward");
}

}  // namespace fa::python
