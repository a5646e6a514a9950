// Reads what a fused inference needs before its tiles begin: left padding, masks of trees, sinks of 16 bits. The
// addresses of the tensors are moved back by the left padding. Then the row offsets that are bound for a padding of 0
// lead to the rows in use.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/kernels/kernel_types.h"
#include "fa/half.h"
#include "fa/mask.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/inference/bind_infer.h"

namespace fa::ops {
namespace {

int64_t ReadPadding(const TensorView& padding) {
  if (padding.data == nullptr) return 0;
  int64_t rows;
  std::memcpy(&rows, padding.data, sizeof rows);
  return std::max<int64_t>(rows, 0);
}

Status WrongPadding(const char* name, int64_t rows, int64_t most, size_t b) {
  return Status::InvalidArgument(Arg(name, {}, At(0)).Is(std::to_string(rows)) + ", want at most " +
                                 std::to_string(most) + " (batch element " + std::to_string(b) + ")");
}

void FillTree(const TreeMasks& tree, const void* mask, std::byte* to) {
  std::memset(to, 0, tree.bytes);
  const auto* from = static_cast<const std::byte*>(mask);
  for (const TreeMasks::PerSequence& of : tree.sequences) {
    for (int64_t i = 0; i < of.rows; ++i) {
      std::byte* last = to + of.to + (i + 1) * of.keys - of.rows;
      std::memcpy(last, from + of.from + i * of.row, static_cast<size_t>(of.rows));
    }
  }
}

void WidenSink(const TensorView& sink, std::byte* to) {
  const auto* from = static_cast<const uint16_t*>(sink.data);
  const int64_t stride = layout::FilledStride(sink.shape, sink.stride)[0];
  for (int64_t n = 0; n < sink.shape[0]; ++n) {
    const uint16_t bits = from[n * stride];
    const float value = sink.dtype == DType::kBF16 ? F32FromBf16(bits) : F32FromF16(bits);
    std::memcpy(to + n * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
}

constexpr float kLargestProbability = 448;  // the largest number of e4m3

/// Moves the address of a tensor back by some elements.
template <typename Byte>
void MoveBack(Byte*& data, int64_t elements, DType dtype) {
  if (data != nullptr) data -= elements * static_cast<int64_t>(SizeOf(dtype));
}

template <typename View>
void MoveRowsBack(View& view, int64_t rows) {
  MoveBack(view.data, rows * view.rows.row, view.rows.dtype);
}

void MovePairsBack(PairView& pairs, const LeftPadding& padding) {
  if (pairs.data == nullptr || pairs.where->sequences.empty()) return;
  MoveBack(pairs.data, padding.q * pairs.where->sequences[0].row + padding.kv, pairs.where->dtype);
}

void MoveBackBy(const LeftPadding& padding, bool absolute_mask, ForwardRows& rows) {
  MoveRowsBack(rows.q, padding.q);
  MoveRowsBack(rows.q_rope, padding.q);
  MoveRowsBack(rows.out, padding.q);
  if (rows.lse.data != nullptr) rows.lse.data -= padding.q * rows.lse.where.row;
  MoveRowsBack(rows.k.view, padding.kv);
  MoveRowsBack(rows.k_rope.view, padding.kv);
  MoveRowsBack(rows.v.view, padding.kv);
  MovePairsBack(rows.scores.pse, padding);
  if (absolute_mask) MovePairsBack(rows.scores.dense_mask, padding);
  rows.first_row = padding.q;
}

}  // namespace

Status CheckInferRunArgs(const BoundInfer& bound, const InferAttentionArgs& args) {
  FA_RETURN_IF_ERROR(CheckDecodeRunArgs(bound.decode, args, TensorsOf(args)));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("cu_kv", args.cu_kv, bound.decode.attention.cu_kv));
  FA_RETURN_IF_ERROR(CheckPlannedLengths("length_prefix", args.length_prefix, bound.length_prefix));
  if (args.q_scale.data != nullptr && args.quant_scale1.data != nullptr) {
    const float factor = *static_cast<const float*>(args.quant_scale1.data);
    if (!(factor > 0 && factor <= kLargestProbability)) {
      return Status::InvalidArgument(Arg("quant_scale1").Is(Text(factor)) + ", want a number above 0, at most 448");
    }
  }
  if (bound.compressed_mask_mode < 0) return Status::Ok();
  return VerifyCompressedMask(args.dense_mask, bound.compressed_mask_mode);
}

bool DropsKeys(const BoundInfer& bound, const LeftPadding& padding, size_t b) {
  const tiling::Sequence& sequence = bound.decode.attention.problem.sequences[b];
  return sequence.sk > 0 && sequence.k_offset < padding.kv;
}

Result<LeftPadding> ReadLeftPadding(const BoundInfer& bound, const InferAttentionArgs& args) {
  LeftPadding padding{.q = ReadPadding(args.q_padding), .kv = ReadPadding(args.kv_padding)};
  if (padding.q == 0 && padding.kv == 0) return padding;
  const std::vector<tiling::Sequence>& sequences = bound.decode.attention.problem.sequences;
  for (size_t b = 0; b < sequences.size(); ++b) {
    const tiling::Sequence& sequence = sequences[b];
    if (bound.pads_q && sequence.q_offset < padding.q) {
      return WrongPadding("q_padding", padding.q, sequence.q_offset, b);
    }
    if (!bound.pads_kv || !DropsKeys(bound, padding, b)) continue;
    if (!bound.single_row) return WrongPadding("kv_padding", padding.kv, sequence.k_offset, b);
    padding.drops_keys = true;
  }
  return padding;
}

ForwardRows RowsOf(const BoundInfer& bound, const InferAttentionArgs& args, const LeftPadding& padding,
                   const InferMemory& memory) {
  ForwardRows rows = RowsOf(bound.decode, args);
  if (const BoundQueryScale& scale = bound.decode.query_scale; scale.used) {
    const auto* factor = static_cast<const float*>(args.quant_scale1.data);
    rows.quantized = {.q_scale = {args.q_scale.data, scale.scale},
                      .scale = rows.scores.scale,
                      .p_factor = factor != nullptr ? *factor : scale.p_factor};
    rows.scores.scale = 1;
  }
  if (bound.widens_sink) {
    WidenSink(args.sink, memory.sink);
    rows.sink.data = reinterpret_cast<const float*>(memory.sink);
  }
  if (!bound.tree.sequences.empty()) {
    FillTree(bound.tree, args.dense_mask.data, memory.tree);
    rows.scores.dense_mask.data = memory.tree;
  }
  if (bound.prefix_rows > 0) {
    rows.k.prefix = {args.k_prefix.data, bound.k_prefix};
    rows.v.prefix = {args.v_prefix.data, bound.v_prefix};
    rows.k.prefix_rows = rows.v.prefix_rows = bound.prefix_rows;
  }
  if (padding.q != 0 || padding.kv != 0) MoveBackBy(padding, bound.absolute_mask, rows);
  return rows;
}

}  // namespace fa::ops
