// A decode is bound as the dense call that it amounts to: one tensor of keys and one of values in the call's layout,
// as long as the longest batch element. What differs is how their rows are found (KeyStorage).
#include "ops/bind_decode.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "layout/bind_layout.h"
#include "ops/argument_error.h"
#include "ops/bind_prompt.h"
#include "ops/strip.h"

namespace fa::ops {
namespace {

using layout::Axes;
using layout::AxesOf;

// The tensors of planning have no memory of their own.
constexpr char kPresent = 0;

std::string NameOf(const char* list, std::span<const TensorView> tensors, size_t i) {
  return tensors.size() == 1 ? list : std::string(list) + "[" + std::to_string(i) + "]";
}

// Of pages: heads in a dimension of their own, or beside the head size.
Axes PageAxes(Layout layout, int rank) {
  if (rank == 3) return AxesOf(Layout::kBSH);
  return AxesOf(layout == Layout::kBSND ? Layout::kBSND : Layout::kBNSD);
}

class DecodeBinding {
 public:
  DecodeBinding(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options, BoundDecode& bound)
      : args_(args), options_(options), bound_(bound), axes_(AxesOf(options.layout)), dense_(DenseArgs(args)) {}

  Status Bind();

 private:
  Status BindDense(std::span<const int64_t> lengths_kv);
  Status CheckCounts() const;
  Status CheckTypes() const;
  Status BindOneTensor();
  Status BindList();
  Status CheckListed(const char* list, std::span<const TensorView> tensors) const;
  Status BindPages();
  Status CheckTableAndLengths(int64_t page_rows) const;
  Status CheckPages(const char* name, const TensorView& pages, const Axes& axes) const;
  void FillStorage();
  Status BindAntiquant();
  Status BindOutput();
  Status CheckAntiquant(const char* name, const TensorView& tensor) const;
  void KeepTensors();

  [[nodiscard]] bool paged() const { return args_.block_table.data != nullptr; }
  [[nodiscard]] int64_t batch() const { return args_.q.shape[axes_.batch]; }
  [[nodiscard]] int64_t QueryHeadSize() const;
  [[nodiscard]] TensorView PagesAsRows(const TensorView& pages, const Axes& axes, int64_t heads, int64_t size,
                                       int64_t rows) const;
  [[nodiscard]] TensorView WithRows(const TensorView& mask) const;

  const DecodeAttentionArgs& args_;
  const DecodeAttentionOptions& options_;
  BoundDecode& bound_;
  const Axes axes_;
  bool own_types_ = false;
  AttentionArgs dense_;
};

Status DecodeBinding::Bind() {
  if (options_.layout == Layout::kTND) {
    return Status::InvalidArgument("layout=TND, want BNSD, BSND, BSH, SBH or BNSD_BSND");
  }
  // A query of another shape than the layout's is refused there.
  if (args_.q.shape.rank() != axes_.rank || args_.q.dtype > DType::kBF16) {
    dense_.k = dense_.v = args_.q;
    return BindDense({});
  }
  if (Status status = CheckCounts(); !status.ok()) return status;
  if (Status status = CheckTypes(); !status.ok()) return status;
  own_types_ = true;
  dense_.dense_mask = WithRows(args_.dense_mask);
  if (args_.pse.shape.rank() == 4) dense_.pse = WithRows(args_.pse);
  bound_.storage.quantized = args_.k[0].dtype == DType::kI8;
  Status status = paged() ? BindPages() : args_.k.size() > 1 ? BindList() : BindOneTensor();
  if (!status.ok()) return status;
  FillStorage();
  if (Status antiquant = BindAntiquant(); !antiquant.ok()) return antiquant;
  if (Status output = BindOutput(); !output.ok()) return output;
  KeepTensors();
  return Status::Ok();
}

Status DecodeBinding::BindDense(std::span<const int64_t> lengths_kv) {
  AttentionOptions options;
  options.layout = options_.layout;
  options.heads = options_.heads;
  options.scale = options_.scale;
  options.mask = options_.mask;
  options.softcap = options_.softcap;
  options.pse_type = PseType::kScaleThenAdd;
  auto bound = BindInference(dense_, options, {.q = args_.lengths_q, .kv = lengths_kv}, own_types_);
  if (!bound.ok()) return bound.status();
  bound_.attention = std::move(*bound);
  return Status::Ok();
}

Status DecodeBinding::CheckCounts() const {
  const size_t tensors = args_.k.size();
  if (tensors == 0) return Status::InvalidArgument("key: missing");
  if (args_.v.size() != tensors) {
    return Status::InvalidArgument("value has " + std::to_string(args_.v.size()) + " tensors, want " +
                                   std::to_string(tensors) + " (key)");
  }
  if (tensors == 1 || (!paged() && static_cast<int64_t>(tensors) == batch())) return Status::Ok();
  return Status::InvalidArgument("key has " + std::to_string(tensors) + " tensors, want 1" +
                                 (paged() ? " (with block_table)" : " or " + std::to_string(batch()) + " (batch)"));
}

Status DecodeBinding::CheckTypes() const {
  const DType first = args_.k[0].dtype, query = args_.q.dtype;
  if (args_.out.dtype != query && args_.out.dtype != DType::kI8) {
    return WrongType("out", args_.out.dtype, std::string(Name(query)) + " (query.dtype) or i8");
  }
  for (const auto& [list, tensors] : {std::pair{"key", args_.k}, std::pair{"value", args_.v}}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const DType dtype = tensors[i].dtype;
      if (dtype != query && dtype != DType::kI8) {
        return WrongType(NameOf(list, tensors, i).c_str(), dtype, std::string(Name(query)) + " (query.dtype) or i8");
      }
      if (dtype != first) {
        return WrongType(NameOf(list, tensors, i).c_str(), dtype, std::string(Name(first)) + " (the first key's)");
      }
    }
  }
  return Status::Ok();
}

Status DecodeBinding::BindOneTensor() {
  dense_.k = {&kPresent, args_.q.dtype, args_.k[0].shape, args_.k[0].stride};
  dense_.v = {&kPresent, args_.q.dtype, args_.v[0].shape, args_.v[0].stride};
  return BindDense(args_.lengths_kv);
}

// One batch element each, equal but for their rows.
Status DecodeBinding::CheckListed(const char* list, std::span<const TensorView> tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = NameOf(list, tensors, i);
    const TensorView& tensor = tensors[i];
    if (tensor.shape.rank() != axes_.rank) {
      return Status::InvalidArgument(name + ".shape=" + Text(tensor.shape) + ", want " + std::to_string(axes_.rank) +
                                     " dimensions (" + Name(options_.layout) + ")");
    }
    if (Status status = CheckView(name.c_str(), tensor); !status.ok()) return status;
    for (int dim = 0; dim < axes_.rank; ++dim) {
      if (dim == axes_.seq) continue;
      const int64_t want = dim == axes_.batch ? 1 : tensors[0].shape[dim];
      const std::string source = dim == axes_.batch ? "a tensor a batch element" : std::string(list) + "[0]";
      if (tensor.shape[dim] != want) return WrongSize(name.c_str(), dim, tensor.shape[dim], want, {source.c_str()});
    }
    const int64_t rows = args_.k[i].shape[axes_.seq];
    if (tensor.shape[axes_.seq] != rows) {
      return WrongSize(name.c_str(), axes_.seq, tensor.shape[axes_.seq], rows,
                       {NameOf("key", args_.k, i).c_str(), axes_.seq});
    }
  }
  return Status::Ok();
}

Status DecodeBinding::BindList() {
  if (Status status = CheckListed("key", args_.k); !status.ok()) return status;
  if (Status status = CheckListed("value", args_.v); !status.ok()) return status;
  const std::span<const int64_t> given = args_.lengths_kv;
  std::vector<int64_t> lengths;
  for (size_t b = 0; b < args_.k.size(); ++b) {
    const int64_t rows = args_.k[b].shape[axes_.seq];
    const int64_t length = given.empty() ? rows : given[given.size() == 1 ? 0 : std::min(b, given.size() - 1)];
    if (length < 0 || length > rows) {
      return Status::InvalidArgument("lengths_kv[" + std::to_string(given.size() == 1 ? 0 : b) +
                                     "]=" + std::to_string(length) + ", want 0.." + std::to_string(rows) +
                                     " (rows of key[" + std::to_string(b) + "])");
    }
    lengths.push_back(length);
  }
  const auto as_one = [&](std::span<const TensorView> tensors) {
    TensorView one{&kPresent, args_.q.dtype, tensors[0].shape,
                   layout::FilledStride(tensors[0].shape, tensors[0].stride)};
    one.shape[axes_.batch] = batch();
    one.stride[axes_.batch] = 0;
    for (const TensorView& tensor : tensors) {
      one.shape[axes_.seq] = std::max(one.shape[axes_.seq], tensor.shape[axes_.seq]);
    }
    return one;
  };
  dense_.k = as_one(args_.k);
  dense_.v = as_one(args_.v);
  if (given.size() > 1 && given.size() < args_.k.size()) return BindDense(given);  // refuses their number
  return BindDense(lengths);
}

int64_t DecodeBinding::QueryHeadSize() const {
  const int64_t extent = args_.q.shape[axes_.dim];
  if (!axes_.fused()) return extent;
  return options_.heads > 0 && extent % options_.heads == 0 ? extent / options_.heads : 0;
}

Status DecodeBinding::CheckTableAndLengths(int64_t page_rows) const {
  const TensorView& table = args_.block_table;
  if (table.dtype != DType::kI32) return WrongType("block_table", table.dtype, "i32");
  if (Status status = CheckView("block_table", table); !status.ok()) return status;
  if (table.shape.rank() != 2) {
    return Status::InvalidArgument("block_table.shape=" + Text(table.shape) + ", want [B, pages]");
  }
  if (Status status = CheckSize("block_table", table, 0, batch(), {"batch"}); !status.ok()) return status;
  const std::span<const int64_t> lengths = args_.lengths_kv;
  if (lengths.empty()) return Status::InvalidArgument("lengths_kv: missing, want the lengths of paged keys");
  int64_t most = 0;
  if (__builtin_mul_overflow(table.shape[1], page_rows, &most)) most = std::numeric_limits<int64_t>::max();
  for (size_t b = 0; b < lengths.size() && static_cast<int64_t>(b) < std::max<int64_t>(batch(), 1); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= most) continue;
    return Status::InvalidArgument("lengths_kv[" + std::to_string(b) + "]=" + std::to_string(lengths[b]) +
                                   ", want 0.." + std::to_string(most) + " (block_table.shape[1] pages of " +
                                   std::to_string(page_rows) + ")");
  }
  return Status::Ok();
}

Status DecodeBinding::CheckPages(const char* name, const TensorView& pages, const Axes& axes) const {
  const int rank = pages.shape.rank();
  const bool heads_apart = !axes_.fused();
  if (rank != 3 && !(rank == 4 && heads_apart)) {
    return Status::InvalidArgument(std::string(name) + ".shape=" + Text(pages.shape) +
                                   ", want [pages, page size, Nkv * D]" +
                                   (!heads_apart                       ? ""
                                    : options_.layout == Layout::kBSND ? " or [pages, page size, Nkv, D]"
                                                                       : " or [pages, Nkv, page size, D]"));
  }
  if (rank != axes.rank) return Status::InvalidArgument(std::string(name) + ".shape: want as many dimensions as key");
  return CheckView(name, pages);
}

// Pages of `heads` heads of `size`, as a tensor of the call's layout that has as many rows as the longest element.
TensorView DecodeBinding::PagesAsRows(const TensorView& pages, const Axes& axes, int64_t heads, int64_t size,
                                      int64_t rows) const {
  const Dims stride = layout::FilledStride(pages.shape, pages.stride);
  TensorView tensor{&kPresent, args_.q.dtype, {}, {}};
  for (int dim = 0; dim < axes_.rank; ++dim) {
    const bool is_row = dim == axes_.seq, is_head = dim == axes_.head, is_batch = dim == axes_.batch;
    tensor.shape.push_back(is_batch ? batch() : is_row ? rows : is_head ? heads : axes_.fused() ? heads * size : size);
    tensor.stride.push_back(is_batch  ? 0
                            : is_row  ? stride[axes.seq]
                            : is_head ? (axes.fused() ? size : stride[axes.head])
                                      : 1);
  }
  return tensor;
}

Status DecodeBinding::BindPages() {
  const TensorView &k = args_.k[0], &v = args_.v[0];
  const Axes axes = PageAxes(options_.layout, k.shape.rank());
  if (Status status = CheckPages("key", k, axes); !status.ok()) return status;
  if (Status status = CheckPages("value", v, axes); !status.ok()) return status;
  const int64_t page_rows = k.shape[axes.seq];
  if (page_rows == 0) return WrongSize("key", axes.seq, 0, "want >= 1");
  for (const int dim : {0, axes.seq}) {
    if (Status status = CheckSize("value", v, dim, k.shape[dim], {"key", dim}); !status.ok()) return status;
  }
  if (Status status = CheckTableAndLengths(page_rows); !status.ok()) return status;
  const int64_t size = QueryHeadSize();
  if (size == 0) {  // the query is refused there
    dense_.k = dense_.v = args_.q;
    return BindDense({});
  }
  if (axes.fused() && k.shape[axes.dim] % size != 0) {
    return WrongSize("key", axes.dim, k.shape[axes.dim],
                     "want a multiple of " + std::to_string(size) + " (head size of query)");
  }
  const int64_t heads = axes.fused() ? k.shape[axes.dim] / size : k.shape[axes.head];
  if (heads == 0) return WrongSize("key", axes.fused() ? axes.dim : axes.head, 0, "want >= 1");
  if (axes.fused() && v.shape[axes.dim] % heads != 0) {
    return WrongSize("value", axes.dim, v.shape[axes.dim],
                     "want a multiple of " + std::to_string(heads) + " (heads of key)");
  }
  const std::span<const int64_t> lengths = args_.lengths_kv;
  const auto used = std::min(lengths.size(), static_cast<size_t>(std::max<int64_t>(batch(), 1)));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(used));
  const int64_t v_heads = axes.fused() ? heads : v.shape[axes.head];
  const int64_t v_size = axes.fused() ? v.shape[axes.dim] / heads : v.shape[axes.dim];
  dense_.k = PagesAsRows(k, axes, heads, axes.fused() ? size : k.shape[axes.dim], longest);
  dense_.v = PagesAsRows(v, axes, v_heads, v_size, longest);
  if (Status status = BindDense(lengths); !status.ok()) return status;
  KeyStorage& storage = bound_.storage;
  storage.page_rows = page_rows;
  storage.k_page = layout::FilledStride(k.shape, k.stride)[0];
  storage.v_page = layout::FilledStride(v.shape, v.stride)[0];
  storage.table_row = layout::FilledStride(args_.block_table.shape, args_.block_table.stride)[0];
  bound_.pages = k.shape[0];
  return Status::Ok();
}

void DecodeBinding::FillStorage() {
  BoundAttention& attention = bound_.attention;
  KeyStorage& storage = bound_.storage;
  const tiling::AttentionProblem& problem = attention.problem;
  if (!paged() && args_.k.size() > 1) {
    for (size_t b = 0; b < args_.k.size(); ++b) {
      storage.k.push_back(layout::RowsOf(args_.k[b], axes_, problem.d));
      storage.v.push_back(layout::RowsOf(args_.v[b], axes_, problem.dv));
    }
  }
  attention.decode = true;
  attention.k.dtype = args_.k[0].dtype;
  attention.v.dtype = args_.v[0].dtype;
  if (storage.paged() || storage.quantized) {
    attention.problem.k_in_place = attention.problem.v_in_place = false;
  }
}

// A mask over [batch, rows, keys] or [batch, keys] as one over [batch, heads, rows, keys]; one row stands for all.
TensorView DecodeBinding::WithRows(const TensorView& mask) const {
  const int rank = mask.shape.rank();
  if (mask.data == nullptr || rank < 2 || rank > 4 || (!mask.stride.empty() && mask.stride.rank() != rank)) return mask;
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  const int64_t sq = args_.q.shape[axes_.seq];
  TensorView whole = mask;
  const int64_t heads = rank == 4 ? mask.shape[1] : 1, rows = rank == 2 ? 1 : mask.shape[rank - 2];
  whole.shape = {mask.shape[0], heads, rows == 1 ? sq : rows, mask.shape[rank - 1]};
  whole.stride = {stride[0], rank == 4 ? stride[1] : 0, rows == 1 ? 0 : stride[rank - 2], stride[rank - 1]};
  return whole;
}

Status DecodeBinding::CheckAntiquant(const char* name, const TensorView& tensor) const {
  if (tensor.dtype > DType::kBF16) return WrongType(name, tensor.dtype, "f32, f16 or bf16");
  if (Status status = CheckView(name, tensor); !status.ok()) return status;
  const tiling::AttentionProblem& problem = bound_.attention.problem;
  const Dims& shape = tensor.shape;
  const int64_t heads = problem.heads_kv, d = problem.d;
  if (options_.antiquant == Antiquant::kPerToken) {
    int64_t longest = 0;
    for (const tiling::Sequence& sequence : problem.sequences) longest = std::max(longest, sequence.sk);
    if (shape.rank() == 3 && shape[0] == 2 && shape[1] == batch() && shape[2] >= longest) return Status::Ok();
    return Status::InvalidArgument(std::string(name) + ".shape=" + Text(shape) + ", want [2," +
                                   std::to_string(batch()) + "," + std::to_string(longest) + "] (one a key)");
  }
  if (shape == Dims{2}) return Status::Ok();
  if (shape == Dims{2, heads, d} || shape == Dims{2, heads, 1, d} || shape == Dims{2, heads * d}) {
    if (problem.dv == d) return Status::Ok();
    return Status::InvalidArgument(std::string(name) + ".shape=" + Text(shape) +
                                   ", want [2] (heads of value have another size than those of key)");
  }
  return Status::InvalidArgument(std::string(name) + ".shape=" + Text(shape) + ", want [2], [2," +
                                 std::to_string(heads) + "," + std::to_string(d) + "] or [2," +
                                 std::to_string(heads * d) + "]");
}

Status DecodeBinding::BindAntiquant() {
  const TensorView &scale = args_.antiquant_scale, &offset = args_.antiquant_offset;
  if (!bound_.storage.quantized) {
    const char* given = scale.data != nullptr    ? "antiquant_scale"
                        : offset.data != nullptr ? "antiquant_offset"
                                                 : nullptr;
    if (given == nullptr) return Status::Ok();
    return Status::InvalidArgument(std::string(given) + ": given, want none (key.dtype is " + Name(args_.k[0].dtype) +
                                   ")");
  }
  if (scale.data == nullptr) return Status::InvalidArgument("antiquant_scale: missing (key.dtype is i8)");
  if (options_.antiquant > Antiquant::kPerToken) {
    return Status::InvalidArgument("antiquant=" + std::to_string(static_cast<int>(options_.antiquant)) +
                                   ", want kPerTensorOrChannel or kPerToken");
  }
  if (Status status = CheckAntiquant("antiquant_scale", scale); !status.ok()) return status;
  bound_.storage.per_token = options_.antiquant == Antiquant::kPerToken;
  if (offset.data == nullptr) return Status::Ok();
  if (Status status = CheckAntiquant("antiquant_offset", offset); !status.ok()) return status;
  if (offset.shape == scale.shape) return Status::Ok();
  return Status::InvalidArgument("antiquant_offset.shape=" + Text(offset.shape) + ", want " + Text(scale.shape) +
                                 " (antiquant_scale)");
}

// As the device, an offset is refused where the rule leaves rows without keys, whose 0 it would move.
Status DecodeBinding::BindOutput() {
  const tiling::AttentionProblem& problem = bound_.attention.problem;
  const OutputScales scales{args_.q.dtype, args_.out.dtype, args_.quant_scale2, args_.quant_offset2};
  if (Status status = BindOutputScales(scales, problem.heads * problem.dv, &bound_.quantised, &bound_.scale_per_column);
      !status.ok()) {
    return status;
  }
  const Mask::Kind kind = options_.mask.kind();
  if (args_.quant_offset2.data == nullptr || kind == Mask::Kind::kNone || kind == Mask::Kind::kCausalTopLeft) {
    return Status::Ok();
  }
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const tiling::Sequence& sequence = problem.sequences[b];
    if (sequence.sq == 0) continue;
    if (!sequence.rule.Keys(0).empty() && !sequence.rule.Keys(sequence.sq - 1).empty()) continue;
    return Status::InvalidArgument("quant_offset2: given, want none where rows have no keys (batch " +
                                   std::to_string(b) + ", Sq=" + std::to_string(sequence.sq) +
                                   ", Sk=" + std::to_string(sequence.sk) + ")");
  }
  return Status::Ok();
}

void DecodeBinding::KeepTensors() {
  bound_.planned = KeepPlanned(TensorsOf(args_));
  const auto keep = [](const char* name, std::span<const TensorView> tensors) {
    std::vector<CallTensor> list;
    for (const TensorView& tensor : tensors) list.push_back(KeyTensor(name, tensor));
    return KeepPlanned(list);
  };
  bound_.planned_k = keep("key", args_.k);
  bound_.planned_v = keep("value", args_.v);
  bound_.lengths_q.assign(args_.lengths_q.begin(), args_.lengths_q.end());
  bound_.lengths_kv.assign(args_.lengths_kv.begin(), args_.lengths_kv.end());
}

}  // namespace

Result<BoundDecode> BindDecode(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options) {
  Result<BoundDecode> result{BoundDecode{}};
  try {
    if (Status status = DecodeBinding(args, options, *result).Bind(); !status.ok()) return status;
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error of a vector of batch elements
    return Status::OutOfMemory("description of the batch");
  }
  return result;
}

AttentionArgs DenseArgs(const DecodeAttentionArgs& args) {
  AttentionArgs dense;
  dense.q = args.q;
  if (!args.k.empty()) dense.k = args.k[0];
  if (!args.v.empty()) dense.v = args.v[0];
  dense.pse = args.pse;
  dense.dense_mask = args.dense_mask;
  dense.out = args.out;
  dense.lse = args.lse;
  return dense;
}

}  // namespace fa::ops
