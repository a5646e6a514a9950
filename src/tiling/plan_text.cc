#include "tiling/plan_text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>

namespace fa::tiling {
namespace {

// Writes a number of bytes as "512 B", "96.0 KiB" or "1.5 GiB".
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

// Writes a length as "7", or as "1..9" if the sequences differ.
template <typename Length>
std::string LengthRange(const std::vector<Sequence>& sequences, Length length) {
  if (sequences.empty()) return "0";
  const auto [least, greatest] = std::minmax_element(
      sequences.begin(), sequences.end(), [&](const Sequence& a, const Sequence& b) { return length(a) < length(b); });
  std::string text = std::to_string(length(*least));
  if (length(*least) != length(*greatest)) text += ".." + std::to_string(length(*greatest));
  return text;
}

}  // namespace

// The lines of a plan are far shorter than the buffer. vsnprintf cuts a longer line.
void PlanText::AddLine(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text_ += line;
  text_ += '\n';
}

void PlanText::AddProblem(const char* op, const AttentionProblem& problem) {
  const std::string sq = LengthRange(problem.sequences, [](const Sequence& s) { return s.sq; });
  const std::string sk = LengthRange(problem.sequences, [](const Sequence& s) { return s.sk; });
  AddLine("%s, %s: %lld sequences, sq %s, sk %s, %lld heads (%lld of k and v), d %lld + rope %lld, dv %lld%s%s", op,
          Name(problem.dtype), Count(problem.sequences.size()), sq.c_str(), sk.c_str(), Wide(problem.heads),
          Wide(problem.heads_kv), Wide(problem.d), Wide(problem.d_rope), Wide(problem.dv),
          problem.dense_mask ? ", dense mask" : "", problem.score_passes ? ", score passes" : "");
}

void PlanText::AddKernels(const Machine& machine, const std::vector<std::string>& kernels) {
  std::string names;
  for (const std::string& kernel : kernels) names += (names.empty() ? "" : ", ") + kernel;
  AddLine("kernels (%s):", Name(machine.isa));
  text_.insert(text_.size() - 1, " " + names);
  if (!machine.isa_note.empty()) text_ += "isa not used: " + machine.isa_note + "\n";
}

void PlanText::AddFlops(double kept, double full, double visited) {
  const auto percent = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 100.0; };
  AddLine("flops: %.3e kept (%.1f %% of unmasked), %.3e visited (%.1f %% useful)", kept, percent(kept, full), visited,
          percent(kept, visited));
}

void PlanText::AddWorkspace(const WorkspacePlan& workspace) {
  AddLine("workspace: %s", Bytes(workspace.total_bytes()).c_str());
  for (const WorkspacePlan::Buffer& buffer : workspace.buffers()) {
    AddLine("  %s: %s at %zu", buffer.name.c_str(), Bytes(buffer.bytes).c_str(), buffer.offset_bytes);
  }
}

void PlanText::AddWorkers(const Machine& machine, double efficiency) {
  AddLine("workers: %d on %d NUMA nodes, predicted efficiency %.1f %%", machine.workers, machine.nodes,
          100 * efficiency);
}

}  // namespace fa::tiling
