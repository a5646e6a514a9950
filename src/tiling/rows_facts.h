#ifndef FA_TILING_ROWS_FACTS_H_
#define FA_TILING_ROWS_FACTS_H_

#include <string>

#include "tiling/plan_facts.h"
#include "tiling/problem.h"
#include "tiling/rows_plan.h"

namespace fa::tiling {

/// The description of an operator whose rows do not depend on one another.
struct RowsFacts {
  const char* op;
  const char* kernel;
  const char* reason;  ///< why a task has so many rows
  double flops = 0;    ///< number of floating-point operations of one run
  std::string problem;
};

/// Returns the facts of an operator's plan. They refer to `plan`.
[[nodiscard]] PlanFacts FactsOf(const RowsPlan& plan, const Machine& machine, const RowsFacts& facts);

}  // namespace fa::tiling

#endif  // FA_TILING_ROWS_FACTS_H_
