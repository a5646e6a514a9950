// fa-mpi bench forward, backward: measures the FLOP/s of all ranks as a fraction of the ranks' peak. Masked pairs do
// not count as FLOPs. The peak is measured in the same run. Every rank makes the tensors of the whole call, checks its
// own rows with them, and then times calls on its own rows.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_report.h"
#include "cases/backward_data.h"
#include "cases/forward_data.h"
#include "commands/progress.h"
#include "fa/ranked_attention.h"
#include "fa_mpi/rank_commands.h"
#include "fa_mpi/rank_files.h"
#include "flags/failure.h"
#include "flags/rank_flags.h"
#include "npy/npy_rows.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_rate.h"

namespace fa::tool {
namespace {

struct RankBenchFlags {
  BenchFlags bench;
  CutFlags cut;
};

/// Copies of a rank's rows of the whole call's tensors.
class OwnTensors {
 public:
  explicit OwnTensors(const OwnRows& rows) : rows_(rows) {}

  /// Take() copies this rank's rows of an input, and makes `view` describe the copy. Give() makes `view` describe new
  /// memory for this rank's rows of an output.
  void Take(TensorView& view, RowAxis axis) { view = Make(view, axis, /*copy=*/true).View(); }
  void Give(MutableTensorView& view, RowAxis axis) {
    std::byte* const whole = static_cast<std::byte*>(view.data);
    const std::vector<int64_t> shape(view.shape.begin(), view.shape.end());
    Tensor& own = Make(view, axis, /*copy=*/false);
    outputs_.push_back({whole, shape, axis, &own});
    view = own.MutableView();
  }
  /// For each output that Give() got, copies this rank's rows into the tensor of the whole call.
  void Return() const {
    for (const auto& [whole, shape, axis, own] : outputs_) npy::PutRows(own->array, Where(shape, axis), whole);
  }

 private:
  struct Output {
    std::byte* whole;
    std::vector<int64_t> shape;
    RowAxis axis;
    const Tensor* own;
  };
  [[nodiscard]] npy::RowsOfArray Where(const std::vector<int64_t>& shape, RowAxis axis) const {
    return {.shape = shape, .axis = static_cast<size_t>(axis.axis), .rows = rows_.Of(axis)};
  }
  Tensor& Make(const TensorView& whole, RowAxis axis, bool copy) {
    const std::vector<int64_t> shape(whole.shape.begin(), whole.shape.end());
    Tensor& own = tensors_.emplace_back(NewTensor(whole.dtype, rows_.Part(shape, axis)));
    if (copy) npy::TakeRows(static_cast<const std::byte*>(whole.data), Where(shape, axis), own.array);
    return own;
  }

  const OwnRows& rows_;
  std::deque<Tensor> tensors_;
  std::vector<Output> outputs_;
};

/// A planned call over ranks, and what is needed to measure it.
struct RankBench {
  const char* op;
  const RankBenchFlags& flags;
  const RankSession& session;
  const ForwardCase& forward;
  const Context& context;
  RankSchedule schedule;
  RanksInfo ranks;
  std::string isa;              ///< the level on which the ranks agreed
  std::function<void()> call;   ///< makes the call; throws UsageError, Failure
  std::function<void()> check;  ///< checks this rank's rows; throws Failure
};

/// Times the calls. A call takes as long as its slowest rank. The peak is the sum of the peaks of all ranks, measured
/// at the same time. The ranks exchange these numbers, so all ranks stop after the same round.
bench::BracketedTiming Measure(const RankBench& bench, bench::PeakRate& peak, Progress* progress) {
  using Clock = std::chrono::steady_clock;
  const auto peak_of_all = [&](double seconds) {
    (void)bench.session.OfAll(0);  // waits until all ranks are here, so that they begin together
    const std::vector<double> of_ranks = bench.session.OfAll(peak.Gflops(seconds));
    return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
  };
  const auto time = [&] {
    (void)bench.session.OfAll(0);  // waits until all ranks are here, so that they begin together
    const Clock::time_point begin = Clock::now();
    bench.call();
    const std::vector<double> of_ranks =
        bench.session.OfAll(std::chrono::duration<double>(Clock::now() - begin).count());
    return *std::max_element(of_ranks.begin(), of_ranks.end());
  };
  constexpr int kFewest = 3;
  bench::BracketedRounds rounds({{.per_call = bench.schedule.info.flops * 1e-9, .rate = peak_of_all}});
  double spent = 0;
  for (int round = 0; round < kFewest || spent < bench.flags.bench.measure.seconds; ++round) {
    if (progress != nullptr) progress->Update(fmt::format("fa-mpi bench {}: {:.0f} s", bench.op, spent));
    spent += rounds.Time(time);
  }
  bench::BracketedTiming timing = rounds.Timing();
  timing.foreign_cpus.reset();  // ForeignLoad counts other ranks on this machine as other programs.
  return timing;
}

void Print(const RankBench& bench, const bench::BracketedTiming& timing, const char* unit) {
  const auto most = [](const std::vector<int64_t>& of_ranks) {
    return *std::max_element(of_ranks.begin(), of_ranks.end());
  };
  // CheckTraffic has compared these numbers with the bytes that a call has moved.
  const int64_t sent = most(bench.ranks.sent_bytes), received = most(bench.ranks.received_bytes);
  const std::string& strategy = bench.ranks.strategy;
  nlohmann::ordered_json json = {{"op", bench.op},
                                 {"shape", bench.forward.Shape()},
                                 {"dtype", Name(bench.forward.dtype)},
                                 {"mask", bench.forward.mask_text},
                                 {"layout", Name(bench.forward.options.layout)},
                                 {"ranks", bench.session.ranks()},
                                 {"cut", bench.flags.cut.cut},
                                 {"strategy", strategy},
                                 {"threads", bench.context.threads()},
                                 {"isa", bench.isa}};
  AddTiming(timing, bench.schedule.info.flops, unit, json);
  json["sent_bytes"] = sent;
  json["received_bytes"] = received;
  if (bench.flags.bench.measure.json) {
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{} {} {} {}, mask {}, {} ranks of {} threads, cut {}, strategy {}, {}\n", bench.op, json["shape"].dump(),
             Name(bench.forward.dtype), Name(bench.forward.options.layout), bench.forward.mask_text,
             bench.session.ranks(), bench.context.threads(), bench.flags.cut.cut, strategy, bench.isa);
  PrintTiming(json);
  fmt::print("messages {:.2f} MiB sent, {:.2f} MiB received by the busiest rank\n",
             static_cast<double>(sent) / (1 << 20), static_cast<double>(received) / (1 << 20));
}

/// Throws Failure unless the first call has moved as many bytes as the plan states.
void CheckTraffic(const RankBench& bench, const Traffic& before) {
  const Traffic& after = bench.session.transport()->traffic();
  const auto rank = static_cast<size_t>(bench.session.rank());
  const auto check = [](const char* what, int64_t got, int64_t want) {
    if (got != want) throw Failure(fmt::format("{} bytes were {}, and the plan tells {}", got, what, want));
  };
  check("sent", after.sent_bytes - before.sent_bytes, bench.ranks.sent_bytes[rank]);
  check("received", after.received_bytes - before.received_bytes, bench.ranks.received_bytes[rank]);
}

void MeasureAndPrint(const RankBench& bench) {
  const RankSession& session = bench.session;
  const Traffic before = session.transport()->traffic();
  std::optional<Progress> progress;
  if (session.is_first()) progress.emplace(fmt::format("fa-mpi bench {}: checking", bench.op));
  session.Together(bench.call);
  session.Together([&] {
    bench.check();
    CheckTraffic(bench, before);
  });
  bench::PeakRate peak(bench.context.threads(), bench.context.isa(), bench.forward.dtype);
  const bench::BracketedTiming timing = Measure(bench, peak, progress ? &*progress : nullptr);
  progress.reset();
  Print(bench, timing, peak.unit());
}

/// The call that a benchmark measures over all ranks, and this rank's rows of it.
struct RankCase {
  std::unique_ptr<Context> context;
  std::optional<ForwardCase> forward;
  SequenceShards shards;
  std::optional<RankSchedule> schedule;
  RankSchedule::Rank mine;
  std::optional<OwnRows> rows;
  std::optional<OwnTensors> own;

  explicit RankCase(const RankBenchFlags& flags)
      : context(MakeContext(flags.bench.measure.context)), shards(ShardsOf(flags.cut)) {
    forward.emplace(flags.bench.forward);
    shards.sq = forward->args.q.shape[axis()];
    shards.sk = forward->args.k.shape[axis()];
  }
  void Cut(Result<RankSchedule> made, const RankSession& session) {
    ThrowUnlessOkFromShape(made.status());
    schedule = std::move(*made);
    mine = schedule->ranks[static_cast<size_t>(session.rank())];
    own.emplace(rows.emplace(mine));
  }
  [[nodiscard]] int axis() const { return SequenceAxis(forward->options.layout); }
  [[nodiscard]] RowAxis queries() const { return {.axis = axis()}; }
  [[nodiscard]] RowAxis keys() const { return {.axis = axis(), .queries = false}; }
  [[nodiscard]] RowAxis results() const { return {.axis = SequenceAxis(OutputLayout(forward->options.layout))}; }
  [[nodiscard]] RowAxis statistics() const { return {.axis = StatsSequenceAxis(forward->options.layout)}; }
};

/// @param check  checks this rank's rows in the tensors of the whole call; throws Failure
template <typename Args>
void MeasurePlan(const char* op, const RankBenchFlags& flags, const RankSession& session, const RankCase& of,
                 const Result<PlanFor<Args>>& plan, const Args& args, const std::function<void()>& check) {
  session.Together([&] { ThrowUnlessOk(plan.status()); });
  Workspace workspace;
  MeasureAndPrint({.op = op,
                   .flags = flags,
                   .session = session,
                   .forward = *of.forward,
                   .context = *of.context,
                   .schedule = *of.schedule,
                   .ranks = plan->info().ranks.value(),
                   .isa = plan->info().isa,
                   .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                   .check =
                       [&] {
                         of.own->Return();
                         check();
                       }});
}

void BenchForward(const RankBenchFlags& flags, const RankSession& session) {
  std::optional<RankCase> of;
  std::optional<ForwardData> data;
  AttentionArgs args;
  session.Together([&] {
    of.emplace(flags);
    of->Cut(ScheduleFlashAttention(of->forward->args, of->forward->options, of->shards, {.ranks = session.ranks()},
                                   of->context.get()),
            session);
    args = data.emplace(*of->forward).Args();
    of->own->Take(args.q, of->queries());
    of->own->Take(args.k, of->keys());
    of->own->Take(args.v, of->keys());
    of->own->Give(args.out, of->results());
  });
  const auto plan = PlanFlashAttention(args, of->forward->options, of->shards, session.transport(), of->context.get());
  MeasurePlan("forward", flags, session, *of, plan, args, [&] { data->CheckRows(of->mine.q_rows); });
}

/// Benchmarks the backward. Every rank first computes the whole forward, which is not timed.
void BenchBackward(const RankBenchFlags& flags, const RankSession& session) {
  std::optional<RankCase> of;
  std::optional<BackwardData> data;
  AttentionGradArgs args;
  session.Together([&] {
    of.emplace(flags);
    of->Cut(ScheduleFlashAttentionGrad(of->forward->GradArgs(), of->forward->options, of->shards,
                                       {.ranks = session.ranks()}, of->context.get()),
            session);
    args = data.emplace(*of->forward, *of->context).Args();
    of->own->Take(args.q, of->queries());
    of->own->Take(args.k, of->keys());
    of->own->Take(args.v, of->keys());
    of->own->Take(args.out, of->results());
    of->own->Take(args.d_out, of->results());
    of->own->Take(args.softmax_max, of->statistics());
    of->own->Take(args.softmax_sum, of->statistics());
    of->own->Give(args.dq, of->queries());
    of->own->Give(args.dk, of->keys());
    of->own->Give(args.dv, of->keys());
  });
  const auto plan =
      PlanFlashAttentionGrad(args, of->forward->options, of->shards, session.transport(), of->context.get());
  MeasurePlan("backward", flags, session, *of, plan, args, [&] { data->CheckRows(of->mine.q_rows, of->mine.k_rows); });
}

void AddRankBench(CLI::App& bench, const char* name, const char* text, RankCommand& chosen,
                  void (*run)(const RankBenchFlags& flags, const RankSession& session)) {
  CLI::App* command = bench.add_subcommand(name, text);
  const auto flags = std::make_shared<RankBenchFlags>();
  AddForwardCaseFlags(*command, flags->bench.forward);
  AddMeasureFlags(*command, flags->bench.measure);
  AddCutFlags(*command, flags->cut);
  command->callback(
      [flags, run, &chosen] { chosen = [flags, run](const RankSession& session) { run(*flags, session); }; });
}

}  // namespace

void AddRankBenchForward(CLI::App& bench, RankCommand& chosen) {
  AddRankBench(bench, "forward", "Time the forward over all ranks; the result is checked first", chosen, BenchForward);
}

void AddRankBenchBackward(CLI::App& bench, RankCommand& chosen) {
  AddRankBench(bench, "backward", "Time the backward over all ranks; the gradients are checked first", chosen,
               BenchBackward);
}

}  // namespace fa::tool
