// Checks the sizes of query, key, value, their rope parts and out. Query defines batch, rows, heads and D; key defines
// its own rows and heads; value defines Dv. All other sizes are compared with these.
#include <cmath>
#include <limits>
#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

using layout::Axes;
using layout::AxesOf;

constexpr int64_t kMaxHeadSize = 1024;

Status CheckRank(const char* name, const TensorView& tensor, Layout layout, const Axes& axes) {
  if (tensor.shape.rank() == axes.rank) return CheckView(name, tensor);
  const bool missing = tensor.shape.empty() && tensor.data == nullptr;
  return Status::InvalidArgument((missing ? Arg(name).Says("missing") : Arg(name, ".shape").Is(Text(tensor.shape))) +
                                 ", want " + std::to_string(axes.rank) + " dimensions (" + Name(layout) + ")");
}

Status CheckHeadSize(const char* name, int dim, int64_t got, int64_t size, int64_t heads) {
  if (size >= 1 && size <= kMaxHeadSize) return Status::Ok();
  std::string want = "want a head size of 1..1024";
  if (heads != 0) want += " times " + std::to_string(heads) + " heads";
  return WrongSize(name, dim, got, want);
}

// Finds the head size of a tensor with `heads` heads. The head size has its own dimension, or shares one with the
// heads.
Status HeadSize(const char* name, const TensorView& tensor, const Axes& axes, int64_t heads, const Words& heads_source,
                int64_t* size) {
  const int64_t extent = tensor.shape[axes.dim];
  if (axes.fused() && extent % heads != 0) {
    return WrongSize(name, axes.dim, extent,
                     "want a multiple of " + std::to_string(heads) + " (" + heads_source.text + ")");
  }
  *size = axes.fused() ? extent / heads : extent;
  return CheckHeadSize(name, axes.dim, extent, *size, axes.fused() ? heads : 0);
}

// A size that another tensor has defined. If `tensor` is null, the size is not compared.
struct Wanted {
  int64_t size = 0;
  const char* tensor = nullptr;
};

struct WantedShape {
  Wanted batch, rows, heads;
};

Status CheckAgainst(const char* name, const TensorView& tensor, const Axes& axes, const Axes& source_axes,
                    const WantedShape& want) {
  const auto check = [&](int dim, int source_dim, const Wanted& wanted) {
    if (dim < 0 || wanted.tensor == nullptr) return Status::Ok();
    return CheckSize(name, tensor, dim, wanted.size, {wanted.tensor, source_dim});
  };
  FA_RETURN_IF_ERROR(check(axes.batch, source_axes.batch, want.batch));
  FA_RETURN_IF_ERROR(check(axes.seq, source_axes.seq, want.rows));
  return check(axes.head, source_axes.head, want.heads);
}

// Compares the last dimension with a head size that another tensor has defined.
Status CheckHeadSizeAgainst(const char* name, const TensorView& tensor, const Axes& axes, const Axes& source_axes,
                            int64_t heads, int64_t size, const char* source) {
  if (!axes.fused()) return CheckSize(name, tensor, axes.dim, size, {source, source_axes.dim});
  int64_t want = 0;
  if (__builtin_mul_overflow(heads, size, &want)) want = std::numeric_limits<int64_t>::max();
  if (tensor.shape[axes.dim] == want) return Status::Ok();
  return WrongSize(name, axes.dim, tensor.shape[axes.dim],
                   "want " + std::to_string(want) + " (" + std::to_string(heads) + " heads of " + std::to_string(size) +
                       ", " + Arg(source) + ")");
}

Status CheckTypes(const DenseTensors& args) {
  const DType dtype = args.q.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return WrongType("q", dtype, "f32, f16 or bf16");
  }
  const auto check = [dtype](const char* name, const void* data, DType got) {
    if (got == dtype || data == nullptr) return Status::Ok();
    return WrongType(name, got, TypeOf("q", dtype));
  };
  // This address makes the check treat k and v as given. A plan may lack their data, although both are required.
  static constexpr char kAlways = 0;
  FA_RETURN_IF_ERROR(check("k", &kAlways, args.k.dtype));
  FA_RETURN_IF_ERROR(check("v", &kAlways, args.v.dtype));
  FA_RETURN_IF_ERROR(check("out", &kAlways, args.out.dtype));
  FA_RETURN_IF_ERROR(check("q_rope", args.q_rope.data, args.q_rope.dtype));
  return check("k_rope", args.k_rope.data, args.k_rope.dtype);
}

Status BindQuery(Binding& call, const Axes& axes) {
  const TensorView& q = call.args.q;
  const int64_t heads = call.options.heads;
  tiling::AttentionProblem& problem = call.bound.problem;
  if (axes.fused()) {
    if (heads == 0)
      return Status::InvalidArgument(Arg("heads").Is("0, want >= 1 (") + Arg("layout") + " " +
                                     Name(call.options.layout) + ")");
    problem.heads = heads;
  } else {
    problem.heads = q.shape[axes.head];
    if (problem.heads == 0) return WrongSize("q", axes.head, 0, "want >= 1");
    if (heads > 0 && heads != problem.heads) {
      return Status::InvalidArgument(Arg("heads").Is(std::to_string(heads)) + ", want " +
                                     std::to_string(problem.heads) + " (" + Arg("q", ".shape", At(axes.head)) + ", " +
                                     Arg("layout") + " " + Name(call.options.layout) + ")");
    }
  }
  call.sizes.q_rows = q.shape[axes.seq];
  if (!call.packed()) call.sizes.sequences = axes.batch >= 0 ? q.shape[axes.batch] : 1;
  return HeadSize("q", q, axes, problem.heads, Arg("heads"), &problem.d);
}

Status BindKey(Binding& call, const Axes& axes) {
  const TensorView& k = call.args.k;
  tiling::AttentionProblem& problem = call.bound.problem;
  call.sizes.k_rows = k.shape[axes.seq];
  FA_RETURN_IF_ERROR(CheckAgainst("k", k, axes, axes, {.batch = {call.sizes.sequences, "q"}, .rows = {}, .heads = {}}));
  const int head_dim = axes.fused() ? axes.dim : axes.head;
  const int64_t extent = k.shape[head_dim];
  if (axes.fused()) {
    if (extent % problem.d != 0) {
      return WrongSize("k", axes.dim, extent,
                       "want a multiple of " + std::to_string(problem.d) + " (head size of " + Arg("q") + ")");
    }
    problem.heads_kv = extent / problem.d;
  } else {
    problem.heads_kv = extent;
    FA_RETURN_IF_ERROR(CheckSize("k", k, axes.dim, problem.d, {"q", axes.dim}));
  }
  if (problem.heads_kv < 1 || problem.heads % problem.heads_kv != 0) {
    return WrongSize("k", head_dim, extent,
                     "want a divisor of " + std::to_string(problem.heads) + " query heads" +
                         (axes.fused() ? " times the head size" : ""));
  }
  return Status::Ok();
}

Status BindValue(Binding& call, const Axes& axes) {
  const TensorView& v = call.args.v;
  tiling::AttentionProblem& problem = call.bound.problem;
  const WantedShape want = {
      .batch = {call.sizes.sequences, "q"}, .rows = {call.sizes.k_rows, "k"}, .heads = {problem.heads_kv, "k"}};
  FA_RETURN_IF_ERROR(CheckAgainst("v", v, axes, axes, want));
  return HeadSize("v", v, axes, problem.heads_kv, "heads of " + Arg("k"), &problem.dv);
}

Status BindRope(Binding& call, const Axes& axes) {
  const DenseTensors& args = call.args;
  const Layout layout = call.options.layout;
  tiling::AttentionProblem& problem = call.bound.problem;
  const bool has_q = args.q_rope.data != nullptr;
  const bool has_k = args.k_rope.data != nullptr;
  call.bound.has_rope = has_q;
  if (has_q != has_k) {
    return Status::InvalidArgument(has_q ? Arg("k_rope").Says("missing (") + Arg("q_rope") + " is given)"
                                         : Arg("q_rope").Says("missing (") + Arg("k_rope") + " is given)");
  }
  if (!has_q) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckRank("q_rope", args.q_rope, layout, axes));
  FA_RETURN_IF_ERROR(CheckRank("k_rope", args.k_rope, layout, axes));
  const WantedShape want_q = {
      .batch = {call.sizes.sequences, "q"}, .rows = {call.sizes.q_rows, "q"}, .heads = {problem.heads, "q"}};
  const WantedShape want_k = {
      .batch = {call.sizes.sequences, "q"}, .rows = {call.sizes.k_rows, "k"}, .heads = {problem.heads_kv, "k"}};
  FA_RETURN_IF_ERROR(CheckAgainst("q_rope", args.q_rope, axes, axes, want_q));
  FA_RETURN_IF_ERROR(CheckAgainst("k_rope", args.k_rope, axes, axes, want_k));
  FA_RETURN_IF_ERROR(HeadSize("q_rope", args.q_rope, axes, problem.heads, Arg("heads"), &problem.d_rope));
  return CheckHeadSizeAgainst("k_rope", args.k_rope, axes, axes, problem.heads_kv, problem.d_rope, "q_rope");
}

Status BindOut(Binding& call, const Axes& axes, const Axes& out_axes) {
  const TensorView out = call.args.out;
  const tiling::AttentionProblem& problem = call.bound.problem;
  const WantedShape want = {
      .batch = {call.sizes.sequences, "q"}, .rows = {call.sizes.q_rows, "q"}, .heads = {problem.heads, "q"}};
  FA_RETURN_IF_ERROR(CheckAgainst("out", out, out_axes, axes, want));
  FA_RETURN_IF_ERROR(CheckHeadSizeAgainst("out", out, out_axes, axes, problem.heads, problem.dv, "v"));
  const bool written = call.direction == Direction::kForward;
  if (written && !out.stride.empty() && layout::OverlapsItself(out)) {
    return Status::InvalidArgument(Arg("out", ".stride").Is(Text(out.stride)) +
                                   ", want strides that keep its elements apart");
  }
  return Status::Ok();
}

bool DenseF32(const layout::Rows& rows, int64_t head_size) {
  return rows.dtype == DType::kF32 && rows.row == head_size;
}

void FillRows(Binding& call, const Axes& axes, const Axes& out_axes) {
  const DenseTensors& args = call.args;
  BoundAttention& bound = call.bound;
  tiling::AttentionProblem& problem = bound.problem;
  bound.q = layout::RowsOf(args.q, axes, problem.d);
  bound.k = layout::RowsOf(args.k, axes, problem.d);
  bound.v = layout::RowsOf(args.v, axes, problem.dv);
  bound.out = layout::RowsOf(args.out, out_axes, problem.dv);
  if (bound.has_rope) {
    bound.q_rope = layout::RowsOf(args.q_rope, axes, problem.d_rope);
    bound.k_rope = layout::RowsOf(args.k_rope, axes, problem.d_rope);
  }
  problem.dtype = args.q.dtype;
  problem.k_in_place = DenseF32(bound.k, problem.d);
  problem.v_in_place = DenseF32(bound.v, problem.dv);
  bound.scale =
      call.options.scale.value_or(static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.d + problem.d_rope))));
}

}  // namespace

Status BindShapes(Binding& call) {
  const DenseTensors& args = call.args;
  const Layout layout = call.options.layout;
  const Axes axes = AxesOf(layout);
  const Axes out_axes = layout::OutputAxes(layout);
  FA_RETURN_IF_ERROR(CheckRank("q", args.q, layout, axes));
  FA_RETURN_IF_ERROR(CheckRank("k", args.k, layout, axes));
  FA_RETURN_IF_ERROR(CheckRank("v", args.v, layout, axes));
  FA_RETURN_IF_ERROR(CheckRank("out", args.out, layout, out_axes));
  if (call.inference == nullptr || !call.inference->own_types) {
    FA_RETURN_IF_ERROR(CheckTypes(args));
  }
  FA_RETURN_IF_ERROR(BindQuery(call, axes));
  FA_RETURN_IF_ERROR(BindKey(call, axes));
  FA_RETURN_IF_ERROR(BindValue(call, axes));
  FA_RETURN_IF_ERROR(BindRope(call, axes));
  FA_RETURN_IF_ERROR(BindOut(call, axes, out_axes));
  FillRows(call, axes, out_axes);
  return Status::Ok();
}

}  // namespace fa::ops
