// fa plan merge: prints the tasks that would merge the rows of two partial results, without merging.

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/plan/plan_json.h"
#include "fa/merge.h"
#include "files/tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

constexpr const char* kSizes = "B,N,S,D";

struct MergePlanFlags {
  std::string shape = "1,32,8192,128";
  std::string dtype = "bf16";
  PlanContextFlags context;
  bool json = false;
};

void Run(const MergePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const DType dtype = ParseFloatType(flags.dtype);
  const std::vector<int64_t> shape = ParseIntegers("--shape", flags.shape);
  if (shape.size() != 4) throw UsageError(fmt::format("--shape: {} sizes, want {}", shape.size(), kSizes));
  CheckHeadSize("--shape", "D", shape[3]);
  if (!npy::BytesOf(shape, npy::ElementType::kF32)) {
    throw UsageError(fmt::format("--shape: {}, want sizes of at least 0 and tensors below 2^63 bytes", flags.shape));
  }
  static char placeholder;
  const MutableTensorView rows = {&placeholder, dtype, {shape[0], shape[1], shape[2], shape[3]}, {}};
  const MutableTensorView statistics = {&placeholder, DType::kF32, {shape[0], shape[1], shape[2]}, {}};
  const Result<PlanFor<MergeArgs>> plan = PlanMergePartials({.prev_out = rows,
                                                             .cur_out = rows,
                                                             .prev_max = statistics,
                                                             .cur_max = statistics,
                                                             .prev_sum = statistics,
                                                             .cur_sum = statistics,
                                                             .out = rows,
                                                             .softmax_max = statistics,
                                                             .softmax_sum = statistics},
                                                            {.layout = Layout::kBNSD}, context.get());
  ThrowUnlessOkFromShape(plan.status());
  PrintPlan(*plan, flags.json);
}

}  // namespace

void AddPlanMerge(CLI::App& plan) {
  CLI::App* command = plan.add_subcommand("merge", "Plan of a merge of two partial results");
  const auto flags = std::make_shared<MergePlanFlags>();
  command->add_option("--shape", flags->shape, fmt::format("{}, default {}", kSizes, flags->shape))->type_name(kSizes);
  command->add_option("--dtype", flags->dtype, "Default: bf16")->type_name("f32|f16|bf16");
  AddContextFlags(*command, flags->context);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
