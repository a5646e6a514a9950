#include "ops/cache/bind_pages.h"

#include <string>

#include "core/saturating.h"
#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa {

const char* Name(CacheForm form) {
  switch (form) {
    case CacheForm::kBnBsND: return "BnBsND";
    case CacheForm::kBnNBsD: return "BnNBsD";
    case CacheForm::kNZ: return "NZ";
  }
  return "unknown";
}

namespace ops {
namespace {

Status CheckPresent(const NamedTensor& named) {
  if (named.tensor.data == nullptr && named.tensor.shape.empty()) {
    return Status::InvalidArgument(Arg(named.name).Says("missing"));
  }
  return CheckView(named.name, named.tensor, /*any_innermost=*/true);
}

Status WrongRank(const NamedTensor& named, const char* want) {
  return Status::InvalidArgument(Arg(named.name, ".shape").Is(Text(named.tensor.shape)) + ", want " + want);
}

/// The sizes of a row: heads and head size. Rows [T, N*D] count as one head.
struct RowSizes {
  int64_t heads = 1, size = 0;
};

/// How the elements of a row lie in the caller's rows (row_...) and in the cache (cache_...); strides count elements. A
/// head is cut into `chunks` chunks of `chunk` elements.
struct Elements {
  int64_t heads = 1, chunks = 1, chunk = 0;
  int64_t row_head = 0, row_element = 0;
  int64_t cache_head = 0, cache_chunk = 0, cache_element = 0;
  int page_row_dim = 1;  ///< index of the cache's dimension that counts the rows of a page
};

Status BindHeads(const NamedTensor& rows, const NamedTensor& cache, const Dims& stride, CacheForm form,
                 const RowSizes& sizes, Elements* elements) {
  const bool rows_first = form == CacheForm::kBnBsND;
  const int head_dim = rows_first ? 2 : 1;
  if (rows.tensor.shape.rank() != 3) return WrongRank(rows, "[T,N,D]");
  if (cache.tensor.shape.rank() != 4) return WrongRank(cache, rows_first ? "[Bn,Bs,N,D]" : "[Bn,N,Bs,D]");
  FA_RETURN_IF_ERROR(CheckSize(cache.name, cache.tensor, head_dim, sizes.heads, {rows.name, 1}));
  FA_RETURN_IF_ERROR(CheckSize(cache.name, cache.tensor, 3, sizes.size, {rows.name, 2}));
  elements->heads = sizes.heads;
  elements->chunk = sizes.size;
  elements->cache_head = stride[head_dim];
  elements->cache_element = stride[3];
  elements->page_row_dim = rows_first ? 1 : 2;
  return Status::Ok();
}

Status BindChunks(const NamedTensor& rows, const NamedTensor& cache, const Dims& stride, const RowSizes& sizes,
                  Elements* elements) {
  const Dims& shape = cache.tensor.shape;
  const int rank = shape.rank(), width_dim = rank - 1, size_dim = rows.tensor.shape.rank() - 1;
  if (rank != 4 && rank != 5) return WrongRank(cache, "[Bn,N,D/L,Bs,L] or [Bn,N*D/L,Bs,L]");
  if (rank == 5 && rows.tensor.shape.rank() != 3) return WrongRank(rows, "[T,N,D]");
  const int64_t width = shape[width_dim];
  if (width < 1 || sizes.size % width != 0) {
    return WrongSize(
        cache.name, width_dim, width,
        "want a divisor of " + std::to_string(sizes.size) + " (" + Arg(rows.name, ".shape", At(size_dim)) + ")");
  }
  const int64_t chunks = sizes.size / width;
  if (rank == 5) {
    FA_RETURN_IF_ERROR(CheckSize(cache.name, cache.tensor, 1, sizes.heads, {rows.name, 1}));
  }
  const int64_t want = rank == 5 ? chunks : sizes.heads * chunks;
  const int chunk_dim = rank == 5 ? 2 : 1;
  if (shape[chunk_dim] != want) {
    return WrongSize(cache.name, chunk_dim, shape[chunk_dim],
                     "want " + std::to_string(want) + " (" + Arg(rows.name, ".shape") + " in chunks of " +
                         std::to_string(width) + ")");
  }
  *elements = {.heads = sizes.heads,
               .chunks = chunks,
               .chunk = width,
               .cache_head = rank == 5 ? stride[1] : core::SaturatedProduct(chunks, stride[1]),
               .cache_chunk = stride[chunk_dim],
               .cache_element = stride[width_dim],
               .page_row_dim = rank - 2};
  return Status::Ok();
}

}  // namespace

Status CheckForm(CacheForm form) {
  if (form <= CacheForm::kNZ) return Status::Ok();
  return Status::InvalidArgument(Arg("form").Is(std::to_string(static_cast<int>(form))) +
                                 ", want BnBsND, BnNBsD or NZ");
}

Result<BoundPages> BindPages(const NamedTensor& rows, const NamedTensor& cache, CacheForm form, bool from_cache,
                             bool converts) {
  const NamedTensor &read = from_cache ? cache : rows, &written = from_cache ? rows : cache;
  FA_RETURN_IF_ERROR(CheckPresent(read));
  FA_RETURN_IF_ERROR(CheckPresent(written));
  if (!converts && written.tensor.dtype != read.tensor.dtype) {
    return WrongType(written.name, written.tensor.dtype, TypeOf(read.name, read.tensor.dtype));
  }
  const int rank = rows.tensor.shape.rank();
  if (rank != 3 && !(rank == 2 && form == CacheForm::kNZ)) return WrongRank(rows, "[T,N,D]");
  const Dims row_stride = layout::FilledStride(rows.tensor.shape, rows.tensor.stride);
  const Dims stride = layout::FilledStride(cache.tensor.shape, cache.tensor.stride);
  const RowSizes sizes{.heads = rank == 3 ? rows.tensor.shape[1] : 1, .size = rows.tensor.shape[rank - 1]};
  Elements elements;
  FA_RETURN_IF_ERROR(form == CacheForm::kNZ ? BindChunks(rows, cache, stride, sizes, &elements)
                                            : BindHeads(rows, cache, stride, form, sizes, &elements));
  elements.row_head = rank == 3 ? row_stride[1] : 0;
  elements.row_element = row_stride[rank - 1];
  if (layout::OverlapsItself(
          {written.tensor.data, written.tensor.dtype, written.tensor.shape, from_cache ? row_stride : stride})) {
    return Status::InvalidArgument(Arg(written.name, ".stride").Is(Text(written.tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  const auto row_bytes = static_cast<int64_t>(SizeOf(rows.tensor.dtype));
  const auto cache_bytes = static_cast<int64_t>(SizeOf(cache.tensor.dtype));
  // A product that overflows belongs to a dimension of one index or to a tensor without elements, so nothing reads the
  // product.
  const auto dim = [&](int64_t size, int64_t of_rows, int64_t of_cache) {
    const int64_t row = core::SaturatedProduct(row_bytes, of_rows),
                  place = core::SaturatedProduct(cache_bytes, of_cache);
    return RowDim{size, from_cache ? place : row, from_cache ? row : place};
  };
  const std::array dims = {
      dim(elements.heads, elements.row_head, elements.cache_head),
      dim(elements.chunks, core::SaturatedProduct(elements.row_element, elements.chunk), elements.cache_chunk),
      dim(elements.chunk, elements.row_element, elements.cache_element)};
  return BoundPages{.rows = rows.tensor.shape[0],
                    .row_stride = core::SaturatedProduct(row_bytes, row_stride[0]),
                    .pages = cache.tensor.shape[0],
                    .page_rows = cache.tensor.shape[elements.page_row_dim],
                    .page_stride = core::SaturatedProduct(cache_bytes, stride[0]),
                    .page_row_stride = core::SaturatedProduct(cache_bytes, stride[elements.page_row_dim]),
                    .row_bytes = core::SaturatedProduct(row_bytes, sizes.heads, sizes.size),
                    .dims = dims,
                    .copy = MakeRowCopy(dims, row_bytes, dim(0, row_stride[0], stride[elements.page_row_dim]))};
}

Status CheckSamePageRows(const BoundPages& key, const BoundPages& value) {
  if (value.page_rows == key.page_rows) return Status::Ok();
  return Status::InvalidArgument(Arg("value_cache").Has(std::to_string(value.page_rows)) + " rows per page, want " +
                                 std::to_string(key.page_rows) + " (" + Arg("key_cache") + ")");
}

}  // namespace ops
}  // namespace fa
