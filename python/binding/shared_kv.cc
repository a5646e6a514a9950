#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// The options of a call, with the lengths to which its arguments refer.
struct SharedKvCallOptions : SharedKvOptions {
  Lengths cu_q, cu_ori, cu_cmp, used_q, used_ori, used_cmp, cmp_residual;
};

SparseMask SharedKvMaskOf(const char* name, int64_t mode, bool band) {
  if (mode != 0 && mode != 3 && !(band && mode == 4)) {
    Raise(Status::InvalidArgument(Arg(name).Is(std::to_string(mode)) + (band ? ", want 0, 3 or 4" : ", want 0 or 3")));
  }
  return static_cast<SparseMask>(mode);
}

SharedKvCallOptions MakeSharedKvOptions(const std::string& layout, std::optional<double> scale, int64_t cmp_ratio,
                                        int64_t ori_mask, int64_t cmp_mask, int64_t window_left, int64_t window_right,
                                        bool ori_indices_are_slots, bool check_indices, bool positive_lse,
                                        int64_t row_rope, int64_t row_tile, Lengths cu_q, Lengths cu_ori,
                                        Lengths cu_cmp, Lengths used_q, Lengths used_ori, Lengths used_cmp,
                                        Lengths cmp_residual) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {{.layout = LayoutOf(layout),
           .scale = NearestFloat(scale),
           .cmp_ratio = cmp_ratio,
           .ori_mask = SharedKvMaskOf("ori_mask", ori_mask, true),
           .cmp_mask = SharedKvMaskOf("cmp_mask", cmp_mask, false),
           .window_left = window_left,
           .window_right = window_right,
           .ori_indices_are_slots = ori_indices_are_slots,
           .check_indices = check_indices,
           .row_format = {.rope = row_rope, .tile = row_tile},
           .lse_without_keys = positive_lse ? kInfinity : -kInfinity},
          std::move(cu_q),
          std::move(cu_ori),
          std::move(cu_cmp),
          std::move(used_q),
          std::move(used_ori),
          std::move(used_cmp),
          std::move(cmp_residual)};
}

// Fills the members that the arguments of forward and gradient share.
template <typename Args>
Args SharedKvInputs(CallArrays& arrays, const SharedKvCallOptions& options) {
  Args args;
  args.q = arrays.In("q");
  args.ori_kv = arrays.In("ori_kv");
  args.cmp_kv = arrays.In("cmp_kv");
  args.ori_indices = arrays.In("ori_indices");
  args.cmp_indices = arrays.In("cmp_indices");
  args.ori_topk_length = arrays.In("ori_topk_length");
  args.cmp_topk_length = arrays.In("cmp_topk_length");
  args.sink = arrays.In("sink");
  args.cu_q = options.cu_q;
  args.cu_ori = options.cu_ori;
  args.cu_cmp = options.cu_cmp;
  args.used_q = options.used_q;
  args.used_ori = options.used_ori;
  args.used_cmp = options.used_cmp;
  args.cmp_residual = options.cmp_residual;
  return args;
}

SharedKvArgs SharedKvForwardArgs(CallArrays& arrays, const SharedKvCallOptions& options, const Lengths& /*lengths_q*/,
                                 const Lengths& /*lengths_kv*/) {
  auto args = SharedKvInputs<SharedKvArgs>(arrays, options);
  args.ori_block_table = arrays.In("ori_block_table");
  args.cmp_block_table = arrays.In("cmp_block_table");
  args.out = arrays.Out("out");
  args.lse = arrays.Out("lse");
  return args;
}

SharedKvGradArgs SharedKvBackwardArgs(CallArrays& arrays, const SharedKvCallOptions& options,
                                      const Lengths& /*lengths_q*/, const Lengths& /*lengths_kv*/) {
  auto args = SharedKvInputs<SharedKvGradArgs>(arrays, options);
  args.out = arrays.In("out");
  args.d_out = arrays.In("d_out");
  args.lse = arrays.In("lse");
  args.dq = arrays.Out("dq");
  args.d_ori_kv = arrays.Out("d_ori_kv");
  args.d_cmp_kv = arrays.Out("d_cmp_kv");
  args.dsink = arrays.Out("dsink");
  args.ori_l1_norm = arrays.Out("ori_l1_norm");
  args.cmp_l1_norm = arrays.Out("cmp_l1_norm");
  return args;
}

}  // namespace

void BindSharedKv(nb::module_& module) {
  nb::class_<SharedKvCallOptions>(module, "SharedKvOptions")
      .def(nb::new_(&MakeSharedKvOptions), nb::kw_only(), "layout"_a, "scale"_a.none(), "cmp_ratio"_a, "ori_mask"_a,
           "cmp_mask"_a, "window_left"_a, "window_right"_a, "ori_indices_are_slots"_a, "check_indices"_a,
           "positive_lse"_a, "row_rope"_a, "row_tile"_a, "cu_q"_a, "cu_ori"_a, "cu_cmp"_a, "used_q"_a, "used_ori"_a,
           "used_cmp"_a, "cmp_residual"_a);
  DefineOperator<SharedKvCallOptions, PlanSharedKvAttention, SharedKvAttention>(module, "shared_kv",
                                                                                &SharedKvForwardArgs);
}

void BindSharedKvBackward(nb::module_& module) {
  DefineOperator<SharedKvCallOptions, PlanSharedKvAttentionGrad, SharedKvAttentionGrad>(module, "shared_kv_backward",
                                                                                        &SharedKvBackwardArgs);
}

}  // namespace fa::python
