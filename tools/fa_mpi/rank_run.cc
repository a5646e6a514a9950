// fa-mpi run forward, backward: agrees with the other ranks on the headers, reads this rank's rows, runs, and writes
// this rank's rows of the outputs.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "commands/progress.h"
#include "commands/run/backward_files.h"
#include "commands/run/forward_files.h"
#include "fa/ranked_attention.h"
#include "fa_mpi/rank_commands.h"
#include "fa_mpi/rank_files.h"
#include "flags/failure.h"
#include "flags/rank_flags.h"

namespace fa::tool {
namespace {

struct ForwardRun {
  ForwardFlags call;
  CutFlags cut;
};

struct BackwardRun {
  BackwardFlags call;
  CutFlags cut;
};

/// The files of a call, and which rows of their tensors this rank has.
struct RankFiles {
  std::unique_ptr<Context> context;
  SequenceShards shards;
  std::optional<AttentionInputs> inputs;
  std::optional<RankOutputs> outputs;
  std::optional<OwnRows> rows;

  /// Sets this rank's rows from the schedule. Throws if there is no schedule because the call is invalid.
  void Cut(const Result<RankSchedule>& schedule, const RankSession& session) {
    ThrowUnlessOk(schedule.status());
    const auto axis = static_cast<int>(SequenceAxis(inputs->options.layout));
    shards.sq = inputs->args.q.shape[axis];
    shards.sk = inputs->args.k.shape[axis];
    rows.emplace(schedule->ranks[static_cast<size_t>(session.rank())]);
    const AttentionArgs& args = inputs->args;
    if (inputs->options.layout == Layout::kTND) rows->SetPairs(args.q.shape[1], args.cu_q, args.cu_kv);
  }
};

/// Returns how ranks divide the position bias: by rows if it has one row per query, otherwise not at all. In TND, a
/// flat bias is divided if it has one element per (row, key) pair.
template <typename Args>
RowAxis RowsOfBias(const AttentionOptions& options, const Args& args) {
  const TensorView& pse = args.pse;
  if (pse.data == nullptr || options.pse_type >= PseType::kSlopes) return {};
  if (options.layout != Layout::kTND) {
    const bool rows = pse.shape[2] == args.q.shape[SequenceAxis(options.layout)];
    return rows ? RowAxis{.axis = 2} : RowAxis();
  }
  if (pse.shape.rank() != 1) return {};
  int64_t pairs = 0, rows = 0, keys = 0;
  for (size_t b = 0; b < args.cu_q.size(); ++b) {
    pairs += args.q.shape[1] * (args.cu_q[b] - rows) * (args.cu_kv[b] - keys);
    rows = args.cu_q[b];
    keys = args.cu_kv[b];
  }
  return pse.shape[0] == pairs ? RowAxis{.axis = 0, .pairs = true} : RowAxis();
}

RowAxis RowsOfMask(Layout layout, const TensorView& mask) {
  return layout == Layout::kTND || mask.data == nullptr ? RowAxis() : RowAxis{.axis = mask.shape.rank() - 2};
}

std::vector<RankInput> ForwardInputs(const AttentionOptions& options, AttentionArgs& args) {
  const Layout layout = options.layout;
  const int axis = SequenceAxis(layout);
  const RowAxis queries{.axis = axis}, keys{.axis = axis, .queries = false}, whole;
  return {{"--query", &args.q, queries},      {"--key", &args.k, keys},
          {"--value", &args.v, keys},         {"--query-rope", &args.q_rope, queries},
          {"--key-rope", &args.k_rope, keys}, {"--pse", &args.pse, RowsOfBias(options, args)},
          {"--sink", &args.sink, whole},      {"--atten-mask", &args.dense_mask, RowsOfMask(layout, args.dense_mask)}};
}

std::vector<RankInput> BackwardInputs(const AttentionOptions& options, AttentionGradArgs& args) {
  const Layout layout = options.layout;
  const int axis = SequenceAxis(layout);
  const RowAxis queries{.axis = axis}, keys{.axis = axis, .queries = false}, whole,
      results{.axis = SequenceAxis(OutputLayout(layout))}, stats{.axis = StatsSequenceAxis(layout)};
  return {{"--query", &args.q, queries},
          {"--key", &args.k, keys},
          {"--value", &args.v, keys},
          {"--query-rope", &args.q_rope, queries},
          {"--key-rope", &args.k_rope, keys},
          {"--pse", &args.pse, RowsOfBias(options, args)},
          {"--sink", &args.sink, whole},
          {"--atten-mask", &args.dense_mask, RowsOfMask(layout, args.dense_mask)},
          {"--dout", &args.d_out, results},
          {"--out", &args.out, results},
          {"--softmax-max", &args.softmax_max, stats},
          {"--softmax-sum", &args.softmax_sum, stats}};
}

/// Plans and runs the call whose inputs the ranks have read, and writes its outputs.
template <typename Args, typename Plan>
void RunAndWrite(const char* name, const RankFiles& files, RankOutputs& outputs, const Args& args,
                 const Result<Plan>& plan, const RankSession& session) {
  session.Together([&] { ThrowUnlessOk(plan.status()); });
  Status computed;
  {
    std::optional<Progress> progress;
    if (session.is_first()) {
      progress.emplace(
          fmt::format("fa-mpi run {}: {} ranks of {} threads", name, session.ranks(), files.context->threads()));
    }
    computed = plan->Run(args);
  }
  session.Together([&] { ThrowUnlessOk(computed); });
  outputs.Commit(*files.rows);
}

void RunForward(const ForwardRun& flags, const RankSession& session) {
  RankFiles files;
  AttentionArgs args;
  session.Together([&] {
    files.context = MakeContext(flags.call.context);
    files.shards = ShardsOf(flags.cut);
    files.inputs.emplace(flags.call.attention, InputFiles::Read::kHeaders);
    const AttentionOptions& options = files.inputs->options;
    args = files.inputs->args;
    files.outputs.emplace(ForwardOutputs(flags.call, *files.inputs, args), session);
    files.Cut(ScheduleFlashAttention(args, options, files.shards, {.ranks = session.ranks()}, files.context.get()),
              session);
    ReadOwnRows(ForwardInputs(options, args), *files.rows, files.inputs->files());
    files.outputs->Allocate(*files.rows);
  });
  RunAndWrite("forward", files, *files.outputs, args,
              PlanFlashAttention(args, files.inputs->options, files.shards, session.transport(), files.context.get()),
              session);
}

void RunBackward(const BackwardRun& flags, const RankSession& session) {
  RankFiles files;
  AttentionGradArgs args;
  session.Together([&] {
    files.context = MakeContext(flags.call.context);
    files.shards = ShardsOf(flags.cut);
    files.inputs.emplace(flags.call.attention, InputFiles::Read::kHeaders);
    const AttentionOptions& options = files.inputs->options;
    args = LoadGradInputs(flags.call, *files.inputs);
    files.outputs.emplace(BackwardOutputs(flags.call, options.layout, args), session);
    files.Cut(ScheduleFlashAttentionGrad(args, options, files.shards, {.ranks = session.ranks()}, files.context.get()),
              session);
    files.outputs->SetRows(args.dpse, RowsOfBias(options, args));
    ReadOwnRows(BackwardInputs(options, args), *files.rows, files.inputs->files());
    files.outputs->Allocate(*files.rows);
  });
  RunAndWrite(
      "backward", files, *files.outputs, args,
      PlanFlashAttentionGrad(args, files.inputs->options, files.shards, session.transport(), files.context.get()),
      session);
}

}  // namespace

void AddRankRunForward(CLI::App& run, RankCommand& chosen) {
  CLI::App* command = run.add_subcommand("forward", "As fa run forward, and the same bytes");
  const auto flags = std::make_shared<ForwardRun>();
  AddForwardFlags(*command, flags->call);
  AddCutFlags(*command, flags->cut);
  command->callback(
      [flags, &chosen] { chosen = [flags](const RankSession& session) { RunForward(*flags, session); }; });
}

void AddRankRunBackward(CLI::App& run, RankCommand& chosen) {
  CLI::App* command = run.add_subcommand("backward", "As fa run backward, and the same bytes");
  const auto flags = std::make_shared<BackwardRun>();
  AddBackwardFlags(*command, flags->call);
  AddCutFlags(*command, flags->cut);
  command->callback(
      [flags, &chosen] { chosen = [flags](const RankSession& session) { RunBackward(*flags, session); }; });
}

}  // namespace fa::tool
