#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>

#include "bindings.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {

SparseMask SparseMaskOf(int64_t sparse_mode) {
  if (sparse_mode != 0 && sparse_mode != 3) {
    Raise(Status::InvalidArgument(Arg("sparse_mode").Is(std::to_string(sparse_mode)) + ", want 0 or 3"));
  }
  return sparse_mode == 0 ? SparseMask::kNone : SparseMask::kRightDownCausal;
}

namespace {

/// Returns false if `name` is `first` and true if it is `second`. Raises ValueError if it is neither.
bool IsSecond(const char* argument, const std::string& name, const std::string& first, const std::string& second) {
  if (name != first && name != second) {
    Raise(Status::InvalidArgument(Arg(argument).Is("\"" + name + "\"") + ", want " + first + " or " + second));
  }
  return name == second;
}

SparseAttentionOptions MakeAttentionOptions(const std::string& layout, std::optional<double> scale, int64_t block_size,
                                            int64_t sparse_mode, bool check_indices,
                                            const std::tuple<int64_t, int64_t, int64_t>& row_format) {
  const auto& [columns, rope, tile] = row_format;
  return {.layout = LayoutOf(layout),
          .scale = NearestFloat(scale),
          .block_size = block_size,
          .mask = SparseMaskOf(sparse_mode),
          .check_indices = check_indices,
          .row_format = {.columns = columns, .rope = rope, .tile = tile}};
}

/// The options of LightningIndexer, and those of its list arguments that only some operators have.
struct IndexerOptions : LightningIndexerOptions {
  Lengths used_q, used_kv, residual_kv;
};

IndexerOptions MakeIndexerOptions(const std::string& layout, int64_t sparse_mode, int64_t cmp_ratio, Lengths used_q,
                                  Lengths used_kv, Lengths residual_kv) {
  return {{.layout = LayoutOf(layout), .mask = SparseMaskOf(sparse_mode), .cmp_ratio = cmp_ratio},
          std::move(used_q),
          std::move(used_kv),
          std::move(residual_kv)};
}

LightningIndexerGradOptions MakeIndexerGradOptions(const std::string& layout, int64_t sparse_mode, bool check_indices) {
  return {.layout = LayoutOf(layout), .mask = SparseMaskOf(sparse_mode), .check_indices = check_indices};
}

DenseIndexerLseOptions MakeLseOptions(const std::string& layout, int64_t sparse_mode) {
  return {.layout = LayoutOf(layout), .mask = SparseMaskOf(sparse_mode)};
}

DenseIndexerLossOptions MakeDenseLossOptions(const std::string& layout, std::optional<double> scale,
                                             int64_t sparse_mode, const std::string& reduction,
                                             const std::string& target) {
  const bool mean = IsSecond("reduction", reduction, "sum", "mean");
  const bool l1 = IsSecond("target", target, "head-mean", "l1");
  return {.layout = LayoutOf(layout),
          .scale = NearestFloat(scale),
          .mask = SparseMaskOf(sparse_mode),
          .reduction = mean ? LossReduction::kMean : LossReduction::kSum,
          .target = l1 ? IndexerTarget::kL1 : IndexerTarget::kHeadMean};
}

/// The options of the sparse loss, and those of its list arguments that only some operators have.
struct SparseLossOptions : SparseIndexerLossOptions {
  Lengths used_q, used_kv, residual_kv;
};

SparseLossOptions MakeSparseLossOptions(const std::string& layout, std::optional<double> scale, int64_t sparse_mode,
                                        const std::string& reduction, const std::string& target, bool check_indices) {
  const auto shared = MakeDenseLossOptions(layout, scale, sparse_mode, reduction, target);
  return {{.layout = shared.layout,
           .scale = shared.scale,
           .mask = shared.mask,
           .reduction = shared.reduction,
           .target = shared.target,
           .check_indices = check_indices},
          {},
          {},
          {}};
}

/// The options of a loss with a given target.
struct GivenLossOptions : SparseLossOptions {};

GivenLossOptions MakeGivenLossOptions(const std::string& layout, int64_t sparse_mode, bool check_indices,
                                      int64_t cmp_ratio, Lengths used_q, Lengths used_kv, Lengths residual_kv) {
  return {{{.layout = LayoutOf(layout),
            .mask = SparseMaskOf(sparse_mode),
            .target = IndexerTarget::kGiven,
            .check_indices = check_indices,
            .cmp_ratio = cmp_ratio},
           std::move(used_q),
           std::move(used_kv),
           std::move(residual_kv)}};
}

// Fills the members that have the same names in the arguments of attention, its gradients and the losses.
template <typename Args>
void FillAttention(CallArrays& arrays, const Lengths& lengths_q, const Lengths& lengths_kv, Args* args) {
  args->q = arrays.In("q");
  args->k = arrays.In("k");
  args->q_rope = arrays.In("q_rope");
  args->k_rope = arrays.In("k_rope");
  args->lengths_q = lengths_q;
  args->lengths_kv = lengths_kv;
}

SparseAttentionArgs SparseForwardArgs(CallArrays& arrays, const SparseAttentionOptions& /*options*/,
                                      const Lengths& lengths_q, const Lengths& lengths_kv) {
  SparseAttentionArgs args;
  FillAttention(arrays, lengths_q, lengths_kv, &args);
  args.v = arrays.In("v");
  args.sparse_indices = arrays.In("sparse_indices");
  args.sink = arrays.In("sink");
  args.block_table = arrays.In("block_table");
  args.out = arrays.Out("out");
  args.softmax_max = arrays.Out("softmax_max");
  args.softmax_sum = arrays.Out("softmax_sum");
  args.p_head_mean = arrays.Out("p_head_mean");
  return args;
}

SparseAttentionGradArgs SparseBackwardArgs(CallArrays& arrays, const SparseAttentionOptions& /*options*/,
                                           const Lengths& lengths_q, const Lengths& lengths_kv) {
  SparseAttentionGradArgs args;
  FillAttention(arrays, lengths_q, lengths_kv, &args);
  args.v = arrays.In("v");
  args.sparse_indices = arrays.In("sparse_indices");
  args.sink = arrays.In("sink");
  args.out = arrays.In("out");
  args.d_out = arrays.In("d_out");
  args.softmax_max = arrays.In("softmax_max");
  args.softmax_sum = arrays.In("softmax_sum");
  args.dq = arrays.Out("dq");
  args.dk = arrays.Out("dk");
  args.dv = arrays.Out("dv");
  args.dq_rope = arrays.Out("dq_rope");
  args.dk_rope = arrays.Out("dk_rope");
  args.dsink = arrays.Out("dsink");
  return args;
}

LightningIndexerArgs IndexerArgs(CallArrays& arrays, const IndexerOptions& options, const Lengths& lengths_q,
                                 const Lengths& lengths_kv) {
  LightningIndexerArgs args;
  args.q = arrays.In("q");
  args.k = arrays.In("k");
  args.weights = arrays.In("weights");
  args.q_scale = arrays.In("q_scale");
  args.k_scale = arrays.In("k_scale");
  args.index_offset = arrays.In("index_offset");
  args.used_q = options.used_q;
  args.used_kv = options.used_kv;
  args.residual_kv = options.residual_kv;
  args.block_table = arrays.In("block_table");
  args.lengths_q = lengths_q;
  args.lengths_kv = lengths_kv;
  args.sparse_indices = arrays.Out("sparse_indices");
  args.sparse_values = arrays.Out("sparse_values");
  return args;
}

LightningIndexerGradArgs IndexerBackwardArgs(CallArrays& arrays, const LightningIndexerGradOptions& /*options*/,
                                             const Lengths& lengths_q, const Lengths& lengths_kv) {
  LightningIndexerGradArgs args;
  args.q = arrays.In("q");
  args.k = arrays.In("k");
  args.weights = arrays.In("weights");
  args.sparse_indices = arrays.In("sparse_indices");
  args.d_values = arrays.In("d_values");
  args.lengths_q = lengths_q;
  args.lengths_kv = lengths_kv;
  args.dq = arrays.Out("dq");
  args.dk = arrays.Out("dk");
  args.dweights = arrays.Out("dweights");
  return args;
}

DenseIndexerLseArgs LseArgs(CallArrays& arrays, const DenseIndexerLseOptions& /*options*/, const Lengths& lengths_q,
                            const Lengths& lengths_kv) {
  DenseIndexerLseArgs args;
  args.q_index = arrays.In("q_index");
  args.k_index = arrays.In("k_index");
  args.weights = arrays.In("weights");
  args.lengths_q = lengths_q;
  args.lengths_kv = lengths_kv;
  args.softmax_max_index = arrays.Out("softmax_max_index");
  args.softmax_sum_index = arrays.Out("softmax_sum_index");
  return args;
}

// Fills the members that SparseIndexerLossArgs and DenseIndexerLossArgs have under the same names.
template <typename Args>
void FillLoss(CallArrays& arrays, const Lengths& lengths_q, const Lengths& lengths_kv, Args* args) {
  FillAttention(arrays, lengths_q, lengths_kv, args);
  args->q_index = arrays.In("q_index");
  args->k_index = arrays.In("k_index");
  args->weights = arrays.In("weights");
  args->softmax_max = arrays.In("softmax_max");
  args->softmax_sum = arrays.In("softmax_sum");
  args->dq_index = arrays.Out("dq_index");
  args->dk_index = arrays.Out("dk_index");
  args->dweights = arrays.Out("dweights");
  args->loss = arrays.Out("loss");
}

SparseIndexerLossArgs SparseLossArgs(CallArrays& arrays, const SparseLossOptions& options, const Lengths& lengths_q,
                                     const Lengths& lengths_kv) {
  SparseIndexerLossArgs args;
  FillLoss(arrays, lengths_q, lengths_kv, &args);
  args.sparse_indices = arrays.In("sparse_indices");
  args.sink = arrays.In("sink");
  args.p_head_mean = arrays.In("p_head_mean");
  args.softmax_index = arrays.Out("softmax_index");
  args.used_q = options.used_q;
  args.used_kv = options.used_kv;
  args.residual_kv = options.residual_kv;
  return args;
}

DenseIndexerLossArgs DenseLossArgs(CallArrays& arrays, const DenseIndexerLossOptions& /*options*/,
                                   const Lengths& lengths_q, const Lengths& lengths_kv) {
  DenseIndexerLossArgs args;
  FillLoss(arrays, lengths_q, lengths_kv, &args);
  args.softmax_max_index = arrays.In("softmax_max_index");
  args.softmax_sum_index = arrays.In("softmax_sum_index");
  return args;
}

}  // namespace

void BindSparseForward(nb::module_& module) {
  nb::class_<SparseAttentionOptions>(module, "SparseAttentionOptions")
      .def(nb::new_(&MakeAttentionOptions), nb::kw_only(), "layout"_a, "scale"_a.none(), "block_size"_a,
           "sparse_mode"_a, "check_indices"_a, "row_format"_a);
  DefineOperator<SparseAttentionOptions, PlanSparseFlashAttention, SparseFlashAttention>(module, "sparse_forward",
                                                                                         &SparseForwardArgs);
}

void BindSparseBackward(nb::module_& module) {
  DefineOperator<SparseAttentionOptions, PlanSparseFlashAttentionGrad, SparseFlashAttentionGrad>(
      module, "sparse_backward", &SparseBackwardArgs);
}

void BindIndexer(nb::module_& module) {
  nb::class_<IndexerOptions>(module, "LightningIndexerOptions")
      .def(nb::new_(&MakeIndexerOptions), nb::kw_only(), "layout"_a, "sparse_mode"_a, "cmp_ratio"_a, "used_q"_a,
           "used_kv"_a, "residual_kv"_a);
  DefineOperator<IndexerOptions, PlanLightningIndexer, LightningIndexer>(module, "indexer", &IndexerArgs);
}

void BindIndexerBackward(nb::module_& module) {
  nb::class_<LightningIndexerGradOptions>(module, "LightningIndexerGradOptions")
      .def(nb::new_(&MakeIndexerGradOptions), nb::kw_only(), "layout"_a, "sparse_mode"_a, "check_indices"_a);
  DefineOperator<LightningIndexerGradOptions, PlanLightningIndexerGrad, LightningIndexerGrad>(
      module, "indexer_backward", &IndexerBackwardArgs);
}

void BindDenseIndexerLse(nb::module_& module) {
  nb::class_<DenseIndexerLseOptions>(module, "DenseIndexerLseOptions")
      .def(nb::new_(&MakeLseOptions), nb::kw_only(), "layout"_a, "sparse_mode"_a);
  DefineOperator<DenseIndexerLseOptions, PlanDenseLightningIndexerSoftmaxLse, DenseLightningIndexerSoftmaxLse>(
      module, "dense_indexer_lse", &LseArgs);
}

void BindIndexerLoss(nb::module_& module) {
  nb::class_<SparseLossOptions>(module, "SparseIndexerLossOptions")
      .def(nb::new_(&MakeSparseLossOptions), nb::kw_only(), "layout"_a, "scale"_a.none(), "sparse_mode"_a,
           "reduction"_a, "target"_a, "check_indices"_a);
  nb::class_<GivenLossOptions, SparseLossOptions>(module, "GivenIndexerLossOptions")
      .def(nb::new_(&MakeGivenLossOptions), nb::kw_only(), "layout"_a, "sparse_mode"_a, "check_indices"_a,
           "cmp_ratio"_a, "used_q"_a, "used_kv"_a, "residual_kv"_a);
  DefineOperator<SparseLossOptions, PlanSparseLightningIndexerGradKLLoss, SparseLightningIndexerGradKLLoss>(
      module, "sparse_indexer_loss", &SparseLossArgs);
}

void BindDenseIndexerLoss(nb::module_& module) {
  nb::class_<DenseIndexerLossOptions>(module, "DenseIndexerLossOptions")
      .def(nb::new_(&MakeDenseLossOptions), nb::kw_only(), "layout"_a, "scale"_a.none(), "sparse_mode"_a, "reduction"_a,
           "target"_a);
  DefineOperator<DenseIndexerLossOptions, PlanDenseLightningIndexerGradKLLoss, DenseLightningIndexerGradKLLoss>(
      module, "dense_indexer_loss", &DenseLossArgs);
}

}  // namespace fa::python
