#include "tiling/describe.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>

namespace fa::tiling {
namespace {

// A line of printf-formatted text. Lines are far shorter than the buffer, which cuts what is not.
[[gnu::format(printf, 2, 3)]] void AddLine(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
  text += '\n';
}

long long Wide(int64_t x) { return x; }
long long Count(size_t x) { return static_cast<long long>(x); }

// "512 B", "96.0 KiB", "1.5 GiB"
std::string Bytes(size_t bytes) {
  char text[32];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%zu B", bytes);
    return text;
  }
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

// "7", or "1..9" where the sequences differ.
template <typename Length>
std::string LengthRange(const std::vector<Sequence>& sequences, Length length) {
  if (sequences.empty()) return "0";
  const auto [least, greatest] = std::minmax_element(
      sequences.begin(), sequences.end(), [&](const Sequence& a, const Sequence& b) { return length(a) < length(b); });
  std::string text = std::to_string(length(*least));
  if (length(*least) != length(*greatest)) text += ".." + std::to_string(length(*greatest));
  return text;
}

void AddProblem(const AttentionProblem& problem, std::string& text) {
  const std::string sq = LengthRange(problem.sequences, [](const Sequence& s) { return s.sq; });
  const std::string sk = LengthRange(problem.sequences, [](const Sequence& s) { return s.sk; });
  AddLine(text,
          "forward, %s: %lld sequences, sq %s, sk %s, %lld heads (%lld of k and v), d %lld + rope %lld, dv %lld%s%s",
          Name(problem.dtype), Count(problem.sequences.size()), sq.c_str(), sk.c_str(), Wide(problem.heads),
          Wide(problem.heads_kv), Wide(problem.d), Wide(problem.d_rope), Wide(problem.dv),
          problem.dense_mask ? ", dense mask" : "", problem.score_passes ? ", score passes" : "");
}

void AddKernels(const Machine& machine, const std::vector<std::string>& kernels, std::string& text) {
  std::string names;
  for (const std::string& kernel : kernels) names += (names.empty() ? "" : ", ") + kernel;
  AddLine(text, "kernels (%s):", Name(machine.isa));
  text.insert(text.size() - 1, " " + names);
}

void AddTasks(const ForwardPlan& plan, std::string& text) {
  const size_t gates = static_cast<size_t>(plan.graph.task_count) - plan.items.size() - plan.packs.size();
  AddLine(text, "tasks: %lld tiles, %lld packs, %lld gates, %lld edges", Count(plan.items.size()),
          Count(plan.packs.size()), Count(gates), Count(plan.graph.successors.size()));
  if (plan.packs.empty()) {
    AddLine(text, "k and v: read where they are");
  } else {
    AddLine(text, "k and v: %s packed to f32 once a head, %lld slots of %lld rows",
            plan.pack_k && plan.pack_v ? "both" : (plan.pack_k ? "k" : "v"), Wide(plan.kv_slots), Wide(plan.slot_rows));
  }
}

void AddFlops(const ForwardPlan& plan, std::string& text) {
  const auto percent = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 100.0; };
  AddLine(text, "flops: %.3e kept (%.1f %% of unmasked), %.3e visited (%.1f %% useful)", plan.flops,
          percent(plan.flops, plan.flops_full), plan.flops_visited, percent(plan.flops, plan.flops_visited));
}

void AddWorkspace(const WorkspacePlan& workspace, std::string& text) {
  AddLine(text, "workspace: %s", Bytes(workspace.total_bytes()).c_str());
  for (const WorkspacePlan::Buffer& buffer : workspace.buffers()) {
    AddLine(text, "  %s: %s at %zu", buffer.name.c_str(), Bytes(buffer.bytes).c_str(), buffer.offset_bytes);
  }
}

void AddLoad(const Machine& machine, const ForwardPlan& plan, std::string& text) {
  AddLine(text, "workers: %d on %d NUMA nodes, predicted efficiency %.1f %%", machine.workers, machine.nodes,
          100 * plan.efficiency);
  if (plan.load.empty()) return;
  const double mean = std::accumulate(plan.load.begin(), plan.load.end(), 0.0) / static_cast<double>(plan.load.size());
  AddLine(text, "load: least %.3f, mean %.3f of the longest range",
          *std::min_element(plan.load.begin(), plan.load.end()), mean);
  for (size_t worker = 0; worker < plan.load.size(); ++worker) {
    const int64_t tasks = plan.graph.range_begin[worker + 1] - plan.graph.range_begin[worker];
    AddLine(text, "  worker %lld: %lld tasks, load %.3f", Count(worker), Wide(tasks), plan.load[worker]);
  }
}

}  // namespace

std::string DescribeForward(const AttentionProblem& problem, const Machine& machine, const ForwardPlan& plan,
                            const WorkspacePlan& workspace, const std::vector<std::string>& kernels) {
  std::string text;
  AddProblem(problem, text);
  AddKernels(machine, kernels, text);
  AddLine(text, "tile: %lld rows x %lld keys: %s", Wide(plan.shape.block_q), Wide(plan.shape.block_k),
          plan.shape.reason.c_str());
  AddTasks(plan, text);
  AddFlops(plan, text);
  AddWorkspace(workspace, text);
  AddLoad(machine, plan, text);
  return text;
}

}  // namespace fa::tiling
