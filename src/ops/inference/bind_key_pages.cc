// Binds keys and values in pages. The dense call has one tensor of keys and one of values. Both tensors have as many
// rows as the longest batch element or packed sequence. Their strides of rows and heads are those of a page.
#include <algorithm>
#include <limits>
#include <string>

#include "ops/inference/bind_decode_parts.h"

namespace fa::ops {
namespace {

using layout::Axes;
using layout::AxesOf;

// The form of pages. Heads have their own dimension, or share one with the head size. In NZ pages, [pages, Nkv, D / D0,
// page size, D0], the columns of a row lie in pieces: `pieces` is the dimension of the pieces.
struct PageForm {
  Axes axes;
  int pieces = -1;

  [[nodiscard]] int64_t Columns(const TensorView& pages) const {
    return pages.shape[axes.dim] * (pieces < 0 ? 1 : pages.shape[pieces]);
  }
  // Returns the elements from piece to piece of a row, or kWholeRows.
  [[nodiscard]] int64_t PieceStride(const TensorView& pages) const {
    return pieces < 0 ? layout::kWholeRows : layout::FilledStride(pages.shape, pages.stride)[pieces];
  }
};

// Returns whether pages of four dimensions are [pages, page size, Nkv, D], not [pages, Nkv, page size, D]. In a decode
// the layout decides. In fused inference the first form is chosen if only that form fits heads_kv and block_size.
bool RowsBeforeHeads(const DecodeBinding& call, const Dims& shape) {
  if (call.fused == nullptr) return call.options.layout == Layout::kBSND || call.options.layout == Layout::kTND;
  const int64_t heads = call.fused->heads_kv, rows = call.fused->block_size;
  const auto fits = [&](int64_t own_heads, int64_t own_rows) {
    return own_heads == heads && (rows == 0 || own_rows == rows);
  };
  return heads > 0 && fits(shape[2], shape[1]) && !fits(shape[1], shape[2]);
}

PageForm FormOf(const DecodeBinding& call, const Dims& shape) {
  if (shape.rank() == 3) return {AxesOf(Layout::kBSH)};
  if (shape.rank() == 5) return {.axes = {5, 0, 3, 1, 4}, .pieces = 2};
  return {AxesOf(shape.rank() == 4 && RowsBeforeHeads(call, shape) ? Layout::kBSND : Layout::kBNSD)};
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

Status WrongPages(const DecodeBinding& call, const char* name, const TensorView& pages) {
  std::string want = "[pages, page size, Nkv * D]";
  if (call.fused != nullptr) {
    want += call.int8_products() ? " or [pages, Nkv, page size, D]"
                                 : ", [pages, Nkv, page size, D] or [pages, Nkv, D / D0, page size, D0]";
  } else if (!call.axes.fused()) {
    want += call.options.layout == Layout::kBSND || call.packed() ? " or [pages, page size, Nkv, D]"
                                                                  : " or [pages, Nkv, page size, D]";
  }
  return Status::InvalidArgument(Arg(name, ".shape").Is(Text(pages.shape)) + ", want " + want);
}

// Checks the last dimension of NZ pages, which is a piece of a row.
Status CheckPieces(const char* name, const TensorView& pages, const PageForm& form) {
  if (form.pieces < 0) return Status::Ok();
  if (pages.dtype == DType::kI4x8) return WrongType(name, pages.dtype, "another type (pages of 5 dimensions)");
  const int64_t want = layout::kPieceBytes / static_cast<int64_t>(SizeOf(pages.dtype));
  if (pages.shape[form.axes.dim] == want) return Status::Ok();
  return WrongSize(name, form.axes.dim, pages.shape[form.axes.dim],
                   "want " + std::to_string(want) + " (" + std::to_string(layout::kPieceBytes) + " bytes)");
}

Status CheckKeyPages(const DecodeBinding& call, const char* name, const TensorView& pages, const PageForm& form) {
  const int rank = pages.shape.rank();
  const bool served = rank == 3 || (rank == 4 && (call.fused != nullptr || !call.axes.fused())) ||
                      (rank == 5 && call.fused != nullptr && !call.int8_products());
  if (!served) return WrongPages(call, name, pages);
  if (rank != form.axes.rank)
    return Status::InvalidArgument(Arg(name, ".shape").Says("want as many dimensions as ") + Arg("k"));
  FA_RETURN_IF_ERROR(CheckView(name, pages));
  return CheckPieces(name, pages, form);
}

// Returns the pages as a tensor of the call's layout, with `heads` heads of `size` columns, and with as many rows as
// the longest batch element.
TensorView PagesAsRows(const DecodeBinding& call, const TensorView& pages, const PageForm& form, int64_t heads,
                       int64_t size, int64_t rows) {
  const Dims stride = layout::FilledStride(pages.shape, pages.stride);
  TensorView tensor{nullptr, call.dense_type(), {}, {}};
  for (int dim = 0; dim < call.axes.rank; ++dim) {
    const bool is_row = dim == call.axes.seq, is_head = dim == call.axes.head, is_batch = dim == call.axes.batch;
    tensor.shape.push_back(is_batch            ? call.batch()
                           : is_row            ? rows
                           : is_head           ? heads
                           : call.axes.fused() ? heads * size
                                               : size);
    tensor.stride.push_back(is_batch  ? 0
                            : is_row  ? stride[form.axes.seq]
                            : is_head ? (form.axes.fused() ? size : stride[form.axes.head])
                                      : 1);
  }
  return tensor;
}

// Sets the strides of bound rows to those of the pages. The batch stride leads from page to page.
void SetStrides(layout::Rows& rows, const TensorView& pages, const PageForm& form, int64_t head_size) {
  const Dims stride = layout::FilledStride(pages.shape, pages.stride);
  rows.batch = stride[0];
  rows.head = form.axes.fused() ? head_size : stride[form.axes.head];
  rows.row = stride[form.axes.seq];
}

// Binds the pages of k_rope. There must be as many pages as for k, with as many rows and heads.
Status MakeRope(DecodeBinding& call, const PageForm& form, int64_t heads, int64_t rows) {
  const TensorView &k = call.args.k[0], &rope = call.args.k_rope[0];
  const Axes& axes = form.axes;
  FA_RETURN_IF_ERROR(CheckKeyPages(call, "k_rope", rope, form));
  for (const int dim : {0, axes.seq}) {
    FA_RETURN_IF_ERROR(CheckSize("k_rope", rope, dim, k.shape[dim], {"k", dim}));
  }
  if (axes.fused() && rope.shape[axes.dim] % heads != 0) {
    return WrongSize("k_rope", axes.dim, rope.shape[axes.dim],
                     "want a multiple of " + std::to_string(heads) + " (heads of " + Arg("k") + ")");
  }
  const int64_t rope_heads = axes.fused() ? heads : rope.shape[axes.head];
  const int64_t size = axes.fused() ? rope.shape[axes.dim] / heads : form.Columns(rope);
  call.k_rope = PagesAsRows(call, rope, form, rope_heads, size, rows);
  return Status::Ok();
}

Status CheckBlockSize(const DecodeBinding& call, int64_t page_rows, const Axes& axes) {
  const int64_t given = call.fused != nullptr ? call.fused->block_size : 0;
  if (given == 0 || given == page_rows) return Status::Ok();
  return Status::InvalidArgument(Arg("block_size").Is(std::to_string(given)) + ", want " + std::to_string(page_rows) +
                                 " (" + Arg("k", ".shape", At(axes.seq)) + ")");
}

}  // namespace

Status BindKeyPages(DecodeBinding& call) {
  const TensorView &k = call.keys[0], &v = call.values[0];
  const PageForm form = FormOf(call, k.shape);
  const Axes& axes = form.axes;
  FA_RETURN_IF_ERROR(CheckKeyPages(call, "k", k, form));
  FA_RETURN_IF_ERROR(CheckKeyPages(call, "v", v, form));
  const int64_t page_rows = k.shape[axes.seq];
  if (page_rows == 0) return WrongSize("k", axes.seq, 0, "want >= 1");
  FA_RETURN_IF_ERROR(CheckBlockSize(call, page_rows, axes));
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
  const int64_t v_size = axes.fused() ? v.shape[axes.dim] / heads : form.Columns(v);
  call.k = PagesAsRows(call, k, form, heads, axes.fused() ? size : form.Columns(k), longest);
  call.v = PagesAsRows(call, v, form, v_heads, v_size, longest);
  if (call.has_rope()) {
    FA_RETURN_IF_ERROR(MakeRope(call, form, heads, longest));
  }
  FA_RETURN_IF_ERROR(BindDense(call, lengths));
  const TensorView& table = call.args.block_table;
  call.bound.storage.table = {
      .row = layout::FilledStride(table.shape, table.stride)[0], .page_rows = page_rows, .pages = k.shape[0]};
  BoundAttention& attention = call.bound.attention;
  SetStrides(attention.k, k, form, attention.problem.d);
  SetStrides(attention.v, v, form, attention.problem.dv);
  call.bound.storage.k_pieces = form.PieceStride(k);
  call.bound.storage.v_pieces = form.PieceStride(v);
  if (call.has_rope()) {
    const TensorView& rope = call.args.k_rope[0];
    SetStrides(attention.k_rope, rope, form, attention.problem.d_rope);
    call.bound.storage.k_rope_pieces = form.PieceStride(rope);
  }
  return Status::Ok();
}

}  // namespace fa::ops
