// fa run merge: merges two partial results that were computed from different keys.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "commands.h"
#include "commands/progress.h"
#include "fa/merge.h"
#include "files/output_files.h"
#include "files/tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

struct MergeFlags {
  std::string layout, dtype, actual_seq_qlen;
  std::optional<int64_t> head_num;
  std::string prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum;
  std::string out, softmax_max, softmax_sum;
  ContextFlags context;
};

/// Merging needs no lengths, because it goes row by row. But if lengths are given, they must match the rows.
void CheckLengths(const MergeFlags& flags, Layout layout, const npy::Array& out) {
  constexpr const char* kFlag = "--actual-seq-qlen";
  if (flags.actual_seq_qlen.empty()) return;
  if (layout != Layout::kTND) throw UsageError(fmt::format("{}: only for layout TND", kFlag));
  const std::vector<int64_t> lengths = ParseIntegers(kFlag, flags.actual_seq_qlen);
  if (lengths.front() < 0 || !std::is_sorted(lengths.begin(), lengths.end())) {
    throw UsageError(
        fmt::format("{}: {}, want prefix sums, none smaller than the one before", kFlag, flags.actual_seq_qlen));
  }
  if (!out.shape().empty() && lengths.back() > out.shape()[0]) {
    throw UsageError(fmt::format("{}: ends at {}, --prev-out has {} rows", kFlag, lengths.back(), out.shape()[0]));
  }
}

void Run(const MergeFlags& flags) {
  MergeOptions options;
  options.layout = ParseLayout(flags.layout);
  options.heads = HeadNumber(flags.head_num);
  std::optional<DType> dtype;
  if (!flags.dtype.empty()) dtype = ParseFloatType(flags.dtype);
  const std::unique_ptr<Context> context = MakeContext(flags.context);

  const Tensor prev_out = LoadActivations("--prev-out", flags.prev_out, dtype);
  const Tensor cur_out = LoadActivations("--cur-out", flags.cur_out, dtype);
  const Tensor prev_max = LoadTensor("--prev-max", flags.prev_max, dtype);
  const Tensor cur_max = LoadTensor("--cur-max", flags.cur_max, dtype);
  const Tensor prev_sum = LoadTensor("--prev-sum", flags.prev_sum, dtype);
  const Tensor cur_sum = LoadTensor("--cur-sum", flags.cur_sum, dtype);
  CheckLengths(flags, options.layout, prev_out.array);

  OutputFiles files;
  const size_t out_file = files.Add("--out", flags.out);
  const size_t max_file = files.Add("--softmax-max", flags.softmax_max);
  const size_t sum_file = files.Add("--softmax-sum", flags.softmax_sum);
  Tensor out = NewTensor(prev_out.dtype, prev_out.array.shape());
  Tensor max = NewTensor(DType::kF32, prev_max.array.shape());
  Tensor sum = NewTensor(DType::kF32, prev_sum.array.shape());
  {
    const Progress progress("fa run merge");
    ThrowUnlessOk(MergePartials({.prev_out = prev_out.View(),
                                 .cur_out = cur_out.View(),
                                 .prev_max = prev_max.View(),
                                 .cur_max = cur_max.View(),
                                 .prev_sum = prev_sum.View(),
                                 .cur_sum = cur_sum.View(),
                                 .out = out.MutableView(),
                                 .softmax_max = max.MutableView(),
                                 .softmax_sum = sum.MutableView()},
                                options, context.get()));
  }
  files.Set(out_file, out.array);
  files.Set(max_file, max.array);
  files.Set(sum_file, sum.array);
  files.Commit();
}

}  // namespace

void AddRunMerge(CLI::App& run) {
  CLI::App* command = run.add_subcommand("merge", "Merge partial results over disjoint sets of keys");
  const auto flags = std::make_shared<MergeFlags>();
  const auto file = [command](const char* flag, std::string& path, const char* text) {
    command->add_option(flag, path, text)->type_name("NPY")->required();
  };
  command->add_option("--layout", flags->layout, "Layout of the outputs; default: SBH")
      ->type_name("SBH|BNSD|TND|BSND|BSH");
  command->add_option("--head-num", flags->head_num, "Heads, for SBH and BSH; default: from the statistics")
      ->type_name("N");
  command->add_option("--dtype", flags->dtype, "bf16: uint16 files are bf16 bits")->type_name("f32|f16|bf16");
  file("--prev-out", flags->prev_out, "First partial output");
  file("--prev-max", flags->prev_max, "Its row maximum, float32 [B,N,S], TND [T,N]");
  file("--prev-sum", flags->prev_sum, "Its row sum, likewise");
  file("--cur-out", flags->cur_out, "Second partial output");
  file("--cur-max", flags->cur_max, "Its row maximum");
  file("--cur-sum", flags->cur_sum, "Its row sum");
  command->add_option("--actual-seq-qlen", flags->actual_seq_qlen, "TND: inclusive prefix sums of the query lengths")
      ->type_name("N,N,...");
  file("--out", flags->out, "Merged output");
  file("--softmax-max", flags->softmax_max, "Merged row maximum");
  file("--softmax-sum", flags->softmax_sum, "Merged row sum");
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
