#include "ops/token/sparse_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/integer.h"
#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/check_pages.h"
#include "tiling/plan_limits.h"

namespace fa::ops {
namespace {

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Status CheckPresent(const char* name, const TensorView& tensor) {
  if (!tensor.shape.empty() || tensor.data != nullptr) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Says("missing"));
}

Status WrongRank(const char* name, const Dims& shape, int want, const char* form) {
  return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want " + std::to_string(want) +
                                 " dimensions (" + form + ")");
}

}  // namespace

Status CheckHeadSize(const char* name, int dim, int64_t size) {
  constexpr int64_t kMost = 1024;
  return size >= 1 && size <= kMost ? Status::Ok() : WrongSize(name, dim, size, "want a head size of 1..1024");
}

int64_t LastSize(const TensorView& tensor) {
  return tensor.shape.empty() ? 0 : tensor.shape[std::min(tensor.shape.rank(), Dims::kMaxRank) - 1];
}

Status SparseTensors::BindQuery(const char* name, const TensorView& q, bool quantized) {
  query_ = name;
  if (layout_ != Layout::kBSND && layout_ != Layout::kTND) {
    const std::string got =
        layout_ <= Layout::kBNSD_BSND ? Name(layout_) : std::to_string(static_cast<int>(layout_)).c_str();
    return Status::InvalidArgument(Arg("layout").Is(got) + ", want BSND or TND");
  }
  FA_RETURN_IF_ERROR(CheckPresent(name, q));
  if (quantized) {
    if (q.dtype != DType::kI8 && q.dtype != DType::kF8E4M3) {
      return WrongType(name, q.dtype, "i8 or f8e4m3 (" + Arg("q_scale") + ")");
    }
  } else if (!IsFloat(q.dtype)) {
    return WrongType(name, q.dtype, "f32, f16 or bf16");
  }
  const int rank = leading() + 2;
  if (q.shape.rank() != rank) {
    return WrongRank(name, q.shape, rank, Name(layout_));
  }
  FA_RETURN_IF_ERROR(CheckView(name, q));
  if (q.shape[rank - 2] == 0) return WrongSize(name, rank - 2, 0, "want >= 1");
  FA_RETURN_IF_ERROR(CheckHeadSize(name, rank - 1, q.shape[rank - 1]));
  dtype_ = q.dtype;
  batch_ = packed() ? 0 : q.shape[0];
  q_rows_ = q.shape[packed() ? 0 : 1];
  heads_ = q.shape[rank - 2];
  head_size_ = q.shape[rank - 1];
  return Status::Ok();
}

Status SparseTensors::BindBlockTable(const TensorView& table, const char* name) {
  if (table.data == nullptr) return Status::Ok();
  if (table.dtype != DType::kI32) return WrongType(name, table.dtype, "i32");
  if (table.shape.rank() != 2) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(table.shape)) + ", want [B, pages]");
  }
  FA_RETURN_IF_ERROR(CheckView(name, table));
  if (!packed()) {
    FA_RETURN_IF_ERROR(CheckSize(name, table, 0, batch_, {query_, 0}));
  }
  page_rows_ = 0;
  batch_ = table.shape[0];
  table_columns_ = table.shape[1];
  return Status::Ok();
}

Status SparseTensors::BindKey(const char* name, const TensorView& k, WantedSize heads, WantedSize columns,
                              DType dtype) {
  key_ = name;
  FA_RETURN_IF_ERROR(CheckPresent(name, k));
  if (k.dtype != dtype) return WrongType(name, k.dtype, TypeOf(query_, dtype));
  const int rank = packed() && !paged() ? 3 : 4;
  if (k.shape.rank() != rank) {
    return WrongRank(name, k.shape, rank, paged() ? "pages" : Name(layout_));
  }
  FA_RETURN_IF_ERROR(CheckView(name, k));
  if (!packed() && !paged()) {
    FA_RETURN_IF_ERROR(CheckSize(name, k, 0, batch_, {query_, 0}));
  }
  FA_RETURN_IF_ERROR(CheckSize(name, k, rank - 2, heads.size, heads.source));
  FA_RETURN_IF_ERROR(CheckSize(name, k, rank - 1, columns.size, columns.source));
  if (!paged()) {
    k_rows_ = k.shape[rank - 3];
    return Status::Ok();
  }
  blocks_ = k.shape[0];
  page_rows_ = k.shape[1];
  if (page_rows_ == 0) return WrongSize(name, 1, 0, "want >= 1 row per page");
  if (__builtin_mul_overflow(table_columns_, page_rows_, &k_rows_)) k_rows_ = std::numeric_limits<int64_t>::max();
  return Status::Ok();
}

Status SparseTensors::CheckShape(const char* name, const TensorView& tensor, std::initializer_list<WantedSize> leading,
                                 std::initializer_list<WantedSize> trailing) const {
  FA_RETURN_IF_ERROR(CheckPresent(name, tensor));
  const int rank = static_cast<int>(leading.size() + trailing.size());
  if (tensor.shape.rank() != rank) {
    return WrongRank(name, tensor.shape, rank, Name(layout_));
  }
  FA_RETURN_IF_ERROR(CheckView(name, tensor));
  int dim = 0;
  for (const auto& sizes : {leading, trailing}) {
    for (const WantedSize& want : sizes) {
      FA_RETURN_IF_ERROR(CheckSize(name, tensor, dim, want.size, want.source));
      ++dim;
    }
  }
  return Status::Ok();
}

Status SparseTensors::CheckQuerySide(const char* name, const TensorView& tensor, DType dtype,
                                     std::initializer_list<WantedSize> trailing) const {
  if (tensor.dtype != dtype) {
    return WrongType(name, tensor.dtype, dtype == dtype_ ? TypeOf(query_, dtype) : ErrorText(Name(dtype)));
  }
  if (packed()) return CheckShape(name, tensor, {{q_rows_, {query_, 0}}}, trailing);
  return CheckShape(name, tensor, {{batch_, {query_, 0}}, {q_rows_, {query_, 1}}}, trailing);
}

Status SparseTensors::CheckKeySide(const char* name, const TensorView& tensor, DType dtype,
                                   std::initializer_list<WantedSize> trailing) const {
  if (tensor.dtype != dtype) return WrongType(name, tensor.dtype, TypeOf(key_, dtype));
  if (paged()) {
    const int rank = 2 + static_cast<int>(trailing.size());
    FA_RETURN_IF_ERROR(CheckPresent(name, tensor));
    if (tensor.shape.rank() != rank) return WrongRank(name, tensor.shape, rank, "pages");
    return CheckShape(name, tensor, {{blocks_, {key_, 0}}, {page_rows_, {key_, 1}}}, trailing);
  }
  if (packed()) return CheckShape(name, tensor, {{k_rows_, {key_, 0}}}, trailing);
  return CheckShape(name, tensor, {{batch_, {query_, 0}}, {k_rows_, {key_, 1}}}, trailing);
}

Status SparseTensors::CheckKeyValues(const char* name, const TensorView& tensor) const {
  FA_RETURN_IF_ERROR(CheckPresent(name, tensor));
  if (!IsFloat(tensor.dtype)) return WrongType(name, tensor.dtype, "f32, f16 or bf16");
  TensorView values = tensor;
  if (tensor.shape.rank() == (packed() && !paged() ? 1 : 2)) {
    values.shape.push_back(1);
    if (!tensor.stride.empty()) values.stride.push_back(1);
  }
  return CheckKeySide(name, values, tensor.dtype, {{1, {"one key head"}}});
}

Status SparseTensors::CheckFloatQuerySide(const char* name, const TensorView& tensor,
                                          std::initializer_list<WantedSize> trailing) const {
  FA_RETURN_IF_ERROR(CheckPresent(name, tensor));
  if (!IsFloat(tensor.dtype)) return WrongType(name, tensor.dtype, "f32, f16 or bf16");
  return CheckQuerySide(name, tensor, tensor.dtype, trailing);
}

Status SparseTensors::CheckRope(const RopeArgs& args, int64_t heads, int64_t heads_kv, int64_t* columns) const {
  const bool has_q = args.q.data != nullptr, has_k = args.k.data != nullptr;
  if (has_q != has_k) {
    return has_q ? Status::InvalidArgument(Arg("k_rope").Says("missing, want it with ") + Arg("q_rope"))
                 : Status::InvalidArgument(Arg("k_rope").Says("given, want none without ") + Arg("q_rope"));
  }
  *columns = 0;
  if (!has_q) return Status::Ok();
  const int last = leading() + 1;
  const int64_t size = LastSize(args.q);
  Status status = CheckQuerySide("q_rope", args.q, dtype_, {{heads, {query_, last - 1}}, {size, {""}}});
  if (!status.ok()) return status;
  if (status = CheckHeadSize("q_rope", last, size); !status.ok()) return status;
  const SizeSource source = heads_kv == 1 ? SizeSource{"one key head"} : SizeSource{"k", last - 1};
  FA_RETURN_IF_ERROR(CheckKeySide("k_rope", args.k, dtype_, {{heads_kv, source}, {size, {"q_rope", last}}}));
  *columns = size;
  return Status::Ok();
}

Status SparseTensors::CheckStatistic(const char* name, const TensorView& tensor, int64_t heads_kv,
                                     int64_t group) const {
  if (tensor.dtype != DType::kF32) return WrongType(name, tensor.dtype, "f32");
  const WantedSize kv{heads_kv, {"heads of keys"}}, g{group, {"query heads per key head"}};
  if (packed()) return CheckShape(name, tensor, {kv, {q_rows_, {query_, 0}}}, {g});
  return CheckShape(name, tensor, {{batch_, {query_, 0}}, kv, {q_rows_, {query_, 1}}}, {g});
}

Status SparseTensors::CheckRowStatistic(const char* name, const TensorView& tensor) const {
  if (tensor.dtype != DType::kF32) return WrongType(name, tensor.dtype, "f32");
  const WantedSize one{1, {"one value per token"}};
  if (packed()) return CheckShape(name, tensor, {one}, {{q_rows_, {query_, 0}}});
  return CheckShape(name, tensor, {{batch_, {query_, 0}}, one}, {{q_rows_, {query_, 1}}});
}

Status SparseTensors::CheckHeadValues(const char* name, const TensorView& tensor, WantedSize heads) const {
  if (tensor.dtype != DType::kF32) return WrongType(name, tensor.dtype, "f32");
  return CheckShape(name, tensor, {}, {heads});
}

Status SparseTensors::CheckIndices(const TensorView& indices, const char* name) const {
  if (indices.dtype != DType::kI32 && indices.dtype != DType::kI64) return WrongType(name, indices.dtype, "i32 or i64");
  const int last = leading() + 1;
  const int64_t entries = indices.shape.rank() == last + 1 ? indices.shape[last] : 0;
  // The length K of a list is bounded too, because every entry is read, however few keys there are.
  if (entries > tiling::kMostKeys) {
    return WrongSize(name, last, entries, "want at most " + std::to_string(tiling::kMostKeys));
  }
  return CheckQuerySide(name, indices, indices.dtype, {{1, {"one list per token"}}, {entries, {""}}});
}

Status SparseTensors::CheckQueryOutput(const char* name, const MutableTensorView& tensor, DType dtype,
                                       std::initializer_list<WantedSize> trailing) const {
  FA_RETURN_IF_ERROR(CheckQuerySide(name, tensor, dtype, trailing));
  return CheckWritable(name, tensor);
}

Status SparseTensors::CheckKeyOutput(const char* name, const MutableTensorView& tensor, DType dtype,
                                     std::initializer_list<WantedSize> trailing) const {
  FA_RETURN_IF_ERROR(CheckKeySide(name, tensor, dtype, trailing));
  return CheckWritable(name, tensor);
}

Status CheckWritable(const char* name, const MutableTensorView& tensor) {
  if (tensor.stride.empty() || !layout::OverlapsItself(tensor)) return Status::Ok();
  return Status::InvalidArgument(Arg(name, ".stride").Is(Text(tensor.stride)) +
                                 ", want strides that keep its elements apart");
}

layout::Rows SparseRowsOf(const TensorView& tensor, bool packed) {
  return layout::RowsOf(tensor, layout::AxesOf(packed ? Layout::kTND : Layout::kBSND),
                        tensor.shape[tensor.shape.rank() - 1]);
}

layout::Rows SparseValuesOf(const TensorView& tensor, bool packed) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  return {.dtype = tensor.dtype, .batch = packed ? 0 : stride[0], .row = stride[packed ? 0 : 1]};
}

layout::Stats SparseStatisticOf(const TensorView& tensor, bool packed) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  const int kv = packed ? 0 : 1;
  return {.batch = packed ? 0 : stride[0], .head = stride[kv + 2], .row = stride[kv + 1], .copy_stride = stride[kv]};
}

layout::Stats SparseRowStatisticOf(const TensorView& tensor, bool packed) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  return {.batch = packed ? 0 : stride[0], .row = stride[packed ? 1 : 2]};
}

layout::BlockTable SparseTensors::PagesOf(const TensorView& block_table) const {
  return {
      .row = layout::FilledStride(block_table.shape, block_table.stride)[0], .page_rows = page_rows_, .pages = blocks_};
}

Status CheckSparsePages(const layout::BlockTable& table, const SparseSequences& sequences) {
  for (size_t b = 0; b < sequences.list.size(); ++b) {
    const SparseSequence& sequence = sequences.list[b];
    if (sequence.sq == 0) continue;
    const tiling::Interval used{0, core::CeilDiv(sequence.sk, table.page_rows)};
    FA_RETURN_IF_ERROR(CheckPages(table, static_cast<int64_t>(b), used));
  }
  return Status::Ok();
}

Result<float> BindSparseScale(const float* given, int64_t columns) {
  if (given == nullptr) return static_cast<float>(1.0 / std::sqrt(static_cast<double>(columns)));
  if (std::isfinite(*given)) return *given;
  return Status::InvalidArgument(Arg("scale").Is(Text(*given)) + ", want a finite number");
}

Status CheckSparseTensors(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned) {
  FA_RETURN_IF_ERROR(CheckAllPlanned(tensors, planned));
  return CheckAllApart(tensors, planned);
}

}  // namespace fa::ops
