#ifndef FA_TILING_PLAN_TEXT_H_
#define FA_TILING_PLAN_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tiling/problem.h"
#include "tiling/workspace_plan.h"

namespace fa::tiling {

/// A plan in words, line by line. The descriptions of all operators use this class.
class PlanText {
 public:
  /// Adds a line of printf-formatted text.
  [[gnu::format(printf, 2, 3)]] void AddLine(const char* format, ...);

  /// Adds lines as they are.
  void Add(const std::string& lines) { text_ += lines; }
  void AddProblem(const char* op, const AttentionProblem& problem);
  void AddKernels(const Machine& machine, const std::vector<std::string>& kernels);
  void AddFlops(double kept, double full, double visited);
  void AddWorkspace(const WorkspacePlan& workspace);
  void AddWorkers(const Machine& machine, double efficiency);

  [[nodiscard]] std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// These functions convert integers to the type that printf's %lld needs.
[[nodiscard]] inline long long Wide(int64_t x) { return x; }
[[nodiscard]] inline long long Count(size_t x) { return static_cast<long long>(x); }

}  // namespace fa::tiling

#endif  // FA_TILING_PLAN_TEXT_H_
