// Binds keys and values in pages. The dense call has one tensor of keys and one of values, each as long as the longest
// batch element or packed sequence. Their strides between rows and between heads are those of a page.
#include <algorithm>
#include <limits>
#include <string>

#include "ops/inference/bind_decode_parts.h"

namespace fa::ops {
namespace {

using layout::Axes;
using layout::AxesOf;

// Returns the axes of pages. Heads have their own dimension, or share one with the head size.
Axes PageAxes(Layout layout, int rank) {
  if (rank == 3) return AxesOf(Layout::kBSH);
  return AxesOf(layout == Layout::kBSND || layout == Layout::kTND ? Layout::kBSND : Layout::kBNSD);
}

Status CheckTableAndLengths(const DecodeBinding& call, int64_t page_rows) {
  const TensorView& table = call.args.block_table;
  if (table.dtype != DType::kI32) return WrongType("block_table", table.dtype, "i32");
  FA_RETURN_IF_ERROR(CheckView("block_table", table));
  if (table.shape.rank() != 2) {
    return Status::InvalidArgument(Arg("block_table", ".shape").Is(Text(table.shape)) + ", want [B, pages]");
  }
  FA_RETURN_IF_ERROR(CheckSize("block_table", table, 0, call.batch(), {"batch"}));
  const std::span<const int64_t> lengths = call.args.lengths_kv;
  if (lengths.empty())
    return Status::InvalidArgument(Arg("lengths_kv").Says("missing, want the lengths of paged keys"));
  int64_t most = 0;
  if (__builtin_mul_overflow(table.shape[1], page_rows, &most)) most = std::numeric_limits<int64_t>::max();
  for (size_t b = 0; b < lengths.size() && static_cast<int64_t>(b) < std::max<int64_t>(call.batch(), 1); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= most) continue;
    return Status::InvalidArgument(Arg("lengths_kv", {}, At(static_cast<int64_t>(b))).Is(std::to_string(lengths[b])) +
                                   ", want 0.." + std::to_string(most) + " (" + Arg("block_table", ".shape", At(1)) +
                                   " pages of " + std::to_string(page_rows) + ")");
  }
  return Status::Ok();
}

Status CheckPages(const DecodeBinding& call, const char* name, const TensorView& pages, const Axes& axes) {
  const int rank = pages.shape.rank();
  const bool heads_apart = !call.axes.fused();
  if (rank != 3 && !(rank == 4 && heads_apart)) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(pages.shape)) + ", want [pages, page size, Nkv * D]" +
                                   (!heads_apart ? ""
                                    : call.options.layout == Layout::kBSND || call.packed()
                                        ? " or [pages, page size, Nkv, D]"
                                        : " or [pages, Nkv, page size, D]"));
  }
  if (rank != axes.rank)
    return Status::InvalidArgument(Arg(name, ".shape").Says("want as many dimensions as ") + Arg("k"));
  return CheckView(name, pages);
}

// Returns the pages as a tensor of the call's layout, with `heads` heads of `size`, and with as many rows as the
// longest batch element.
TensorView PagesAsRows(const DecodeBinding& call, const TensorView& pages, const Axes& axes, int64_t heads,
                       int64_t size, int64_t rows) {
  const Dims stride = layout::FilledStride(pages.shape, pages.stride);
  TensorView tensor{nullptr, call.args.q.dtype, {}, {}};
  for (int dim = 0; dim < call.axes.rank; ++dim) {
    const bool is_row = dim == call.axes.seq, is_head = dim == call.axes.head, is_batch = dim == call.axes.batch;
    tensor.shape.push_back(is_batch            ? call.batch()
                           : is_row            ? rows
                           : is_head           ? heads
                           : call.axes.fused() ? heads * size
                                               : size);
    tensor.stride.push_back(is_batch  ? 0
                            : is_row  ? stride[axes.seq]
                            : is_head ? (axes.fused() ? size : stride[axes.head])
                                      : 1);
  }
  return tensor;
}

// Binds the pages of k_rope. There must be as many pages as for k, with as many rows and heads.
Status MakeRope(DecodeBinding& call, const Axes& axes, int64_t heads, int64_t rows) {
  const TensorView &k = call.args.k[0], &rope = call.args.k_rope[0];
  FA_RETURN_IF_ERROR(CheckPages(call, "k_rope", rope, axes));
  for (const int dim : {0, axes.seq}) {
    FA_RETURN_IF_ERROR(CheckSize("k_rope", rope, dim, k.shape[dim], {"k", dim}));
  }
  if (axes.fused() && rope.shape[axes.dim] % heads != 0) {
    return WrongSize("k_rope", axes.dim, rope.shape[axes.dim],
                     "want a multiple of " + std::to_string(heads) + " (heads of " + Arg("k") + ")");
  }
  const int64_t rope_heads = axes.fused() ? heads : rope.shape[axes.head];
  const int64_t size = axes.fused() ? rope.shape[axes.dim] / heads : rope.shape[axes.dim];
  call.k_rope = PagesAsRows(call, rope, axes, rope_heads, size, rows);
  return Status::Ok();
}

}  // namespace

Status BindKeyPages(DecodeBinding& call) {
  const TensorView &k = call.keys[0], &v = call.values[0];
  const Axes axes = PageAxes(call.options.layout, k.shape.rank());
  FA_RETURN_IF_ERROR(CheckPages(call, "k", k, axes));
  FA_RETURN_IF_ERROR(CheckPages(call, "v", v, axes));
  const int64_t page_rows = k.shape[axes.seq];
  if (page_rows == 0) return WrongSize("k", axes.seq, 0, "want >= 1");
  for (const int dim : {0, axes.seq}) {
    FA_RETURN_IF_ERROR(CheckSize("v", v, dim, k.shape[dim], {"k", dim}));
  }
  FA_RETURN_IF_ERROR(CheckTableAndLengths(call, page_rows));
  const int64_t size = call.QueryHeadSize();
  if (size == 0) {  // BindDense refuses the query
    call.k = call.v = call.args.q;
    return BindDense(call, {});
  }
  if (axes.fused() && k.shape[axes.dim] % size != 0) {
    return WrongSize("k", axes.dim, k.shape[axes.dim],
                     "want a multiple of " + std::to_string(size) + " (head size of " + Arg("q") + ")");
  }
  const int64_t heads = axes.fused() ? k.shape[axes.dim] / size : k.shape[axes.head];
  if (heads == 0) return WrongSize("k", axes.fused() ? axes.dim : axes.head, 0, "want >= 1");
  if (axes.fused() && v.shape[axes.dim] % heads != 0) {
    return WrongSize("v", axes.dim, v.shape[axes.dim],
                     "want a multiple of " + std::to_string(heads) + " (heads of " + Arg("k") + ")");
  }
  const std::span<const int64_t> lengths = call.args.lengths_kv;
  const auto used = std::min(lengths.size(), static_cast<size_t>(std::max<int64_t>(call.batch(), 1)));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(used));
  const int64_t v_heads = axes.fused() ? heads : v.shape[axes.head];
  const int64_t v_size = axes.fused() ? v.shape[axes.dim] / heads : v.shape[axes.dim];
  call.k = PagesAsRows(call, k, axes, heads, axes.fused() ? size : k.shape[axes.dim], longest);
  call.v = PagesAsRows(call, v, axes, v_heads, v_size, longest);
  if (call.has_rope()) {
    FA_RETURN_IF_ERROR(MakeRope(call, axes, heads, longest));
  }
  FA_RETURN_IF_ERROR(BindDense(call, lengths));
  const TensorView& table = call.args.block_table;
  call.bound.storage.table = {
      .row = layout::FilledStride(table.shape, table.stride)[0], .page_rows = page_rows, .pages = k.shape[0]};
  call.bound.attention.k.batch = layout::FilledStride(k.shape, k.stride)[0];
  call.bound.attention.v.batch = layout::FilledStride(v.shape, v.stride)[0];
  if (call.has_rope()) {
    const TensorView& rope = call.args.k_rope[0];
    call.bound.attention.k_rope.batch = layout::FilledStride(rope.shape, rope.stride)[0];
  }
  return Status::Ok();
}

}  // namespace fa::ops
