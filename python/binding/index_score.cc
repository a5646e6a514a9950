#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <utility>

#include "bindings.h"
#include "fa/indexer_kl_loss.h"
#include "fa/msa_index_score.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// The options of MsaIndexScore, and start_loc, an argument that no other operator has.
struct IndexScoreOptions : MsaIndexScoreOptions {
  Lengths start_loc;
};

IndexScoreOptions MakeIndexScoreOptions(int64_t sparse_mode, int64_t init_blocks, int64_t local_blocks,
                                        Lengths start_loc) {
  return {{.mask = SparseMaskOf(sparse_mode), .init_blocks = init_blocks, .local_blocks = local_blocks},
          std::move(start_loc)};
}

MsaIndexScoreArgs IndexScoreArgs(CallArrays& arrays, const IndexScoreOptions& options, const Lengths& lengths_q,
                                 const Lengths& lengths_kv) {
  MsaIndexScoreArgs args;
  args.q = arrays.In("q");
  args.k = arrays.In("k");
  args.k_scale = arrays.In("k_scale");
  args.block_table = arrays.In("block_table");
  args.lengths_q = lengths_q;
  args.lengths_kv = lengths_kv;
  args.start_loc = options.start_loc;
  args.score = arrays.Out("score");
  return args;
}

IndexerKLLossOptions MakeLossValueOptions(double eps, const std::string& weight) {
  if (weight != "target" && weight != "normalised") {
    Raise(Status::InvalidArgument(Arg("weight").Is("\"" + weight + "\"") + ", want target or normalised"));
  }
  return {.eps = eps, .weight = weight == "target" ? IndexerKLLossWeight::kTarget : IndexerKLLossWeight::kNormalised};
}

IndexerKLLossArgs LossValueArgs(CallArrays& arrays, const IndexerKLLossOptions& /*options*/,
                                const Lengths& /*lengths_q*/, const Lengths& /*lengths_kv*/) {
  IndexerKLLossArgs args;
  args.target = arrays.Statistics("target");
  args.probabilities = arrays.Statistics("probabilities");
  args.loss = arrays.Out("loss");
  return args;
}

}  // namespace

void BindIndexScore(nb::module_& module) {
  nb::class_<IndexScoreOptions>(module, "MsaIndexScoreOptions")
      .def(nb::new_(&MakeIndexScoreOptions), nb::kw_only(), "sparse_mode"_a, "init_blocks"_a, "local_blocks"_a,
           "start_loc"_a);
  DefineOperator<IndexScoreOptions, PlanMsaIndexScore, MsaIndexScore>(module, "index_score", &IndexScoreArgs);
}

void BindIndexerLossValue(nb::module_& module) {
  nb::class_<IndexerKLLossOptions>(module, "IndexerKLLossOptions")
      .def(nb::new_(&MakeLossValueOptions), nb::kw_only(), "eps"_a, "weight"_a);
  DefineOperator<IndexerKLLossOptions, PlanIndexerKLLoss, IndexerKLLoss>(module, "indexer_loss_value", &LossValueArgs);
}

}  // namespace fa::python
