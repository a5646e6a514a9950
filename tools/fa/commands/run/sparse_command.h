#ifndef FA_TOOLS_FA_COMMANDS_RUN_SPARSE_COMMAND_H_
#define FA_TOOLS_FA_COMMANDS_RUN_SPARSE_COMMAND_H_

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commands/progress.h"
#include "fa/plan.h"
#include "files/input_files.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_names.h"
#include "flags/flag_values.h"
#include "flags/layout_shapes.h"
#include "flags/sparse_flags.h"

namespace fa::tool {

/// The sizes from which the shapes of outputs follow.
template <typename Args>
struct SparseShapes {
  const Args& args;
  const SparseFlags& flags;
  Layout layout;
  TensorSizes query;

  /// Describes a tensor with `sizes` elements for every query token: BSND [B,S1,...], TND [T,...].
  [[nodiscard]] TensorView PerToken(DType dtype, std::initializer_list<int64_t> sizes) const {
    TensorView view = {nullptr, dtype, {query.seq}, {}};
    if (layout != Layout::kTND) view.shape = {query.batch, query.seq};
    for (const int64_t size : sizes) view.shape.push_back(size);
    return view;
  }
  /// Returns the shape of softmax_max and softmax_sum: [B,1,S1,N], in TND [1,T,N].
  [[nodiscard]] TensorView Statistics() const {
    TensorView view = RowStatistics();
    view.shape.push_back(query.heads);
    return view;
  }
  /// Returns the shape of softmax_max_index and softmax_sum_index: [B,1,S1], in TND [1,T].
  [[nodiscard]] TensorView RowStatistics() const {
    TensorView view = {nullptr, DType::kF32, {}, {}};
    if (layout != Layout::kTND) view.shape.push_back(query.batch);
    for (const int64_t size : {int64_t{1}, query.seq}) view.shape.push_back(size);
    return view;
  }
};

/// Whether a command needs a file that it reads or writes.
enum class FileUse : uint8_t { kNeeded, kOptional };

template <typename Args>
struct SparseInput {
  const char* flag;
  TensorView Args::*tensor;
  const char* text;
  FileUse use = FileUse::kNeeded;
};

template <typename Args>
struct SparseOutput {
  const char* flag;
  MutableTensorView Args::*tensor;
  const char* text;
  FileUse use;
  std::function<TensorView(const SparseShapes<Args>&)> like;  ///< the output has the type and shape of this tensor
};

/// A sparse command of `fa run`: which file holds which tensor of the library's call.
template <typename Args, typename Options>
struct SparseCommand {
  const char* name;
  const char* text;
  Result<PlanFor<Args>> (*plan)(const Args&, const Options&, Context*);
  std::vector<SparseInput<Args>> inputs;  ///< the inputs; the queries come first
  std::vector<SparseOutput<Args>> outputs;
  std::vector<void (*)(CLI::App&, SparseFlags&)> flags;  ///< functions that add flags that not all sparse commands have
};

/// The values of a command's flags.
struct SparseCommandFlags {
  SparseFlags sparse;
  ContextFlags context;
  /// The paths of the files, in the order of the command's inputs and outputs.
  std::vector<std::string> inputs, outputs;
};

template <typename Args, typename Options>
void RunSparse(const SparseCommand<Args, Options>& command, const SparseCommandFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  Options options;
  ReadOptions(flags.sparse, options);
  const auto lengths = [](const char* flag, const std::string& text) {
    return text.empty() ? std::vector<int64_t>{} : ParseIntegers(flag, text);
  };
  Args args;
  std::vector<std::vector<int64_t>> owned;  // the lengths to which `args` refers
  const auto set_lengths = [&](std::span<const int64_t> Args::*member, const char* flag, const std::string& text) {
    owned.push_back(lengths(flag, text));
    args.*member = owned.back();
  };
  owned.reserve(7);
  std::span<const FlagName> names = SparseFlagNames();
  if constexpr (requires { args.cmp_residual; }) {
    const SharedKvFlags& shared = flags.sparse.shared;
    set_lengths(&Args::cu_q, "--cu-q", shared.cu_q);
    set_lengths(&Args::cu_ori, "--cu-ori", shared.cu_ori);
    set_lengths(&Args::cu_cmp, "--cu-cmp", shared.cu_cmp);
    set_lengths(&Args::used_q, "--used-q", shared.used_q);
    set_lengths(&Args::used_ori, "--used-ori", shared.used_ori);
    set_lengths(&Args::used_cmp, "--used-cmp", shared.used_cmp);
    set_lengths(&Args::cmp_residual, "--cmp-residual", shared.cmp_residual);
    names = SharedKvFlagNames();
  } else {
    set_lengths(&Args::lengths_q, "--actual-seq-qlen", flags.sparse.actual_seq_qlen);
    set_lengths(&Args::lengths_kv, "--actual-seq-kvlen", flags.sparse.actual_seq_kvlen);
  }
  if constexpr (requires { args.residual_kv; }) {
    set_lengths(&Args::used_q, "--used-q", flags.sparse.used_q);
    set_lengths(&Args::used_kv, "--used-kv", flags.sparse.used_kv);
    set_lengths(&Args::residual_kv, "--residual-kv", flags.sparse.residual_kv);
  }
  InputFiles files(flags.sparse.dtype);
  for (size_t i = 0; i < command.inputs.size(); ++i) {
    TensorView& input = args.*command.inputs[i].tensor;
    input = files.Load(command.inputs[i].flag, flags.inputs[i]);
    if (input.dtype == DType::kU8) input.dtype = DType::kF8E4M3;  // no sparse operator takes other tensors of uint8
  }
  const auto& [query_flag, query_tensor, query_text, query_use] = command.inputs.front();
  const Dims& query_shape = (args.*query_tensor).shape;
  const TensorSizes query = SizesOf(query_flag, options.layout, {query_shape.begin(), query_shape.end()}, 0);
  if constexpr (requires { options.row_format.columns; }) {
    if (const int64_t rope = flags.sparse.rope_columns, tile = KeyTileOf(flags.sparse); tile != 0) {
      if (rope < 0 || rope >= query.d)
        throw UsageError(fmt::format("--rope-columns: {}, want 0..{}", rope, query.d - 1));
      options.row_format = {.columns = query.d - rope, .rope = rope, .tile = tile};
    }
  }
  OutputTensors outputs;
  for (size_t i = 0; i < command.outputs.size(); ++i) {
    const SparseOutput<Args>& output = command.outputs[i];
    if (flags.outputs[i].empty()) continue;
    const TensorView like = output.like({args, flags.sparse, options.layout, query});
    outputs.Add(output.flag, flags.outputs[i], args.*output.tensor, like.dtype, {like.shape.begin(), like.shape.end()});
  }
  auto plan = command.plan(args, options, context.get());
  ThrowUnlessOk(plan.status(), names);
  outputs.Allocate();
  {
    const Progress progress(fmt::format("fa run {}: {:.3g} GFLOP on {} threads", command.name,
                                        plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args), names);
  }
  outputs.Commit();
}

template <typename Args, typename Options>
void AddSparseCommand(CLI::App& run, SparseCommand<Args, Options> command) {
  CLI::App* app = run.add_subcommand(command.name, command.text);
  const auto flags = std::make_shared<SparseCommandFlags>();
  flags->inputs.resize(command.inputs.size());
  flags->outputs.resize(command.outputs.size());
  const auto add = [app](const char* flag, std::string& path, const char* text, FileUse use) {
    app->add_option(flag, path, text)->type_name("NPY")->required(use == FileUse::kNeeded);
  };
  for (size_t i = 0; i < command.inputs.size(); ++i) {
    add(command.inputs[i].flag, flags->inputs[i], command.inputs[i].text, command.inputs[i].use);
  }
  if constexpr (requires(Args args) { args.cmp_residual; }) {
    AddSharedKvFlags(*app, flags->sparse);
  } else {
    AddSequenceFlags(*app, flags->sparse);
  }
  for (const auto& add_flags : command.flags) add_flags(*app, flags->sparse);
  for (size_t i = 0; i < command.outputs.size(); ++i) {
    add(command.outputs[i].flag, flags->outputs[i], command.outputs[i].text, command.outputs[i].use);
  }
  AddContextFlags(*app, flags->context);
  app->callback([command = std::move(command), flags] { RunSparse(command, *flags); });
}

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_RUN_SPARSE_COMMAND_H_
