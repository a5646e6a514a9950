#include "aclnn/operations/block_sparse_call.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "aclnn/operations/names.h"
#include "aclnn/runtime/descriptors.h"
#include "fa/block_mask.h"

namespace fa::aclnn {
namespace {

constexpr Layout kBlockSparseLayouts[] = {Layout::kTND, Layout::kBNSD, Layout::kBSND};

Result<Layout> BlockSparseLayout(const BlockSparseParameters& parameters) {
  const std::string_view q = parameters.q_layout, kv = parameters.kv_layout;
  const auto* layout = std::find_if(std::begin(kBlockSparseLayouts), std::end(kBlockSparseLayouts),
                                    [&](Layout x) { return Name(x) == q; });
  if (layout == std::end(kBlockSparseLayouts)) {
    return Status::InvalidArgument("qInputLayout=\"" + std::string(q) + R"(", want "TND", "BNSD" or "BSND")");
  }
  if (kv != q) {
    return Status::InvalidArgument("kvInputLayout=\"" + std::string(kv) + "\", want \"" + std::string(q) +
                                   "\" (qInputLayout)");
  }
  return *layout;
}

/// Reads blockShape into the sizes of the mask.
Status ReadBlockShape(const aclIntArray* array, PairLists* sizes) {
  constexpr int64_t kDefault = 128;
  sizes->block_rows = sizes->block_keys = kDefault;
  if (array == nullptr) return Status::Ok();
  const auto values = ValuesOf("blockShape", array);
  if (!values.ok()) return values.status();
  if (values->size() != 2) {
    return Status::InvalidArgument("blockShape has " + std::to_string(values->size()) + " entries, want 2");
  }
  for (size_t i = 0; i < 2; ++i) {
    if ((*values)[i] >= 1) continue;
    return Status::InvalidArgument("blockShape[" + std::to_string(i) + "]=" + std::to_string((*values)[i]) +
                                   ", want >= 1");
  }
  sizes->block_rows = (*values)[0];
  sizes->block_keys = (*values)[1];
  return Status::Ok();
}

/// Checks lengths, one per batch element.
/// @param rows  the most that one length may be; in TND the most that their sum may be
Status CheckBlockLengths(const char* name, const std::vector<int64_t>& lengths, int64_t batch, int64_t rows,
                         bool packed) {
  if (std::ssize(lengths) != batch) {
    return Status::InvalidArgument(std::string(name) + " has " + std::to_string(lengths.size()) + " entries, want " +
                                   std::to_string(batch));
  }
  int64_t left = rows;
  for (size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || lengths[b] > left) {
      return Status::InvalidArgument(std::string(name) + "[" + std::to_string(b) + "]=" + std::to_string(lengths[b]) +
                                     ", want 0.." + std::to_string(left));
    }
    if (packed) left -= lengths[b];
  }
  return Status::Ok();
}

/// Turns lengths into inclusive prefix sums, and returns the largest length.
int64_t Accumulate(std::vector<int64_t>& lengths) {
  int64_t longest = 0, sum = 0;
  for (int64_t& length : lengths) {
    longest = std::max(longest, length);
    length = sum += length;
  }
  return longest;
}

Status ReadBlockLengths(const BlockSparseParameters& parameters, int64_t rows_kv, BlockSparseCall& call) {
  const std::tuple<const char*, const aclIntArray*, std::vector<int64_t>*, int64_t, int64_t*> lists[] = {
      {"actualSeqLengths", parameters.lengths_q, &call.lengths_q, call.rows, &call.sizes.rows},
      {"actualSeqLengthsKv", parameters.lengths_kv, &call.lengths_kv, rows_kv, &call.sizes.keys}};
  for (const auto& [name, array, lengths, rows, longest] : lists) {
    *longest = rows;
    if (array == nullptr) {
      if (!call.packed()) continue;
      return Status::InvalidArgument(std::string(name) + ": missing, want one length per sequence (qInputLayout TND)");
    }
    auto values = ValuesOf(name, array);
    if (!values.ok()) return values.status();
    *lengths = std::move(*values);
    if (call.packed() && lengths == &call.lengths_q) {
      call.batch = std::ssize(*lengths);
      if (call.batch == 0) return Status::InvalidArgument(std::string(name) + " has 0 entries, want at least 1");
    }
    FA_RETURN_IF_ERROR(CheckBlockLengths(name, *lengths, call.batch, rows, call.packed()));
    if (call.packed()) *longest = Accumulate(*lengths);
  }
  return Status::Ok();
}

}  // namespace

Result<BlockSparseCall> BlockSparseCallOf(const BlockSparseParameters& parameters, const TensorView& q,
                                          const TensorView& k) {
  if (parameters.mask_type != 0) {
    return Status::InvalidArgument("maskType=" + std::to_string(parameters.mask_type) + ", want 0");
  }
  BlockSparseCall call;
  const auto layout = BlockSparseLayout(parameters);
  if (!layout.ok()) return layout.status();
  call.layout = *layout;
  const int rank = call.packed() ? 3 : 4, heads = call.layout == Layout::kBSND ? 2 : 1,
            rows = call.packed() ? 0 : 3 - heads;
  for (const auto& [name, view] : {std::pair{"query", &q}, {"key", &k}}) {
    if (view->shape.rank() == rank) continue;
    return Status::InvalidArgument(std::string(name) + " has " + std::to_string(view->shape.rank()) +
                                   " dimensions, want " + std::to_string(rank) + " (qInputLayout " + Name(call.layout) +
                                   ")");
  }
  if (k.shape[heads] != parameters.heads_kv) {
    return Status::InvalidArgument("numKeyValueHeads=" + std::to_string(parameters.heads_kv) + ", want " +
                                   std::to_string(k.shape[heads]) + " (key)");
  }
  call.batch = call.packed() ? 0 : q.shape[0];
  call.heads = q.shape[heads];
  call.rows = q.shape[rows];
  FA_RETURN_IF_ERROR(ReadBlockShape(parameters.block_shape, &call.sizes));
  FA_RETURN_IF_ERROR(ReadBlockLengths(parameters, k.shape[rows], call));
  return call;
}

Mask BlockSparseCall::Rule() const {
  if (packed() || (lengths_q.empty() && lengths_kv.empty())) return Mask::None();
  std::vector<int64_t> end;
  for (int64_t b = 0; b < batch; ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t in_use = lengths_q.empty() ? rows : lengths_q[at];
    end.insert(end.end(), static_cast<size_t>(in_use), lengths_kv.empty() ? sizes.keys : lengths_kv[at]);
    end.insert(end.end(), static_cast<size_t>(rows - in_use), 0);
  }
  std::vector<int64_t> begin(end.size());
  return Mask::Rows(std::move(begin), std::move(end));
}

Status BlockSparseCall::CheckLse(const Dims& shape) const {
  const Dims want = packed()                  ? Dims{rows, heads, 1}
                    : layout == Layout::kBSND ? Dims{batch, rows, heads, 1}
                                              : Dims{batch, heads, rows, 1};
  if (shape == want) return Status::Ok();
  const auto text = [](const Dims& of) {
    std::string sizes;
    for (const int64_t size : of) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    return "[" + sizes + "]";
  };
  return Status::InvalidArgument("softmaxLse.shape=" + text(shape) + ", want " + text(want));
}

Result<std::optional<PairMask>> BlockSparseCall::MaskOf(const TensorView& blocks, bool shape_only) const {
  if (blocks.data == nullptr) return std::optional<PairMask>();
  TensorView view = blocks;
  static constexpr uint8_t kKept = 1;
  if (shape_only) {
    view.data = &kKept;
    view.stride = blocks.shape;
    for (int i = 0; i < blocks.shape.rank() && i < Dims::kMaxRank; ++i) view.stride[i] = 0;
  }
  auto mask = PairMaskFromBlocks(view, sizes);
  if (mask.ok()) return std::optional<PairMask>(std::move(*mask));
  constexpr Rename kOwn[] = {{"blocks", "blockSparseMask"}, {"rows", "query"}, {"keys", "key"}};
  return Renamed(mask.status(), Names::kForward, kOwn);
}

}  // namespace fa::aclnn
