#ifndef FA_OPS_CALL_TENSORS_H_
#define FA_OPS_CALL_TENSORS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/indexer_loss.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/prompt_flash_attention.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// One tensor of a call, whatever the operator; it points into the arguments. `required` ones may have null data while
/// planning, the others are absent then.
struct CallTensor {
  const char* name;  ///< in errors
  const void* data;
  DType dtype;
  const Dims* shape;
  const Dims* stride;
  bool required;
  bool output;
};

/// What a plan keeps of one, to compare in Run. Absent: all but `present` is void.
struct PlannedTensor {
  bool present = false;
  DType dtype = DType::kF32;
  Dims shape, stride;
  int64_t span_bytes = 0;  ///< from the first to past the last byte
};

inline constexpr size_t kForwardTensors = 13;
inline constexpr size_t kBackwardTensors = 21;
inline constexpr size_t kDecodeTensors = 11;
inline constexpr size_t kPromptTensors = 17;
inline constexpr size_t kSparseTensors = 12;
inline constexpr size_t kSparseGradTensors = 17;
inline constexpr size_t kIndexerTensors = 6;
inline constexpr size_t kIndexerGradTensors = 8;
inline constexpr size_t kSparseLossTensors = 15;
inline constexpr size_t kDenseLossTensors = 15;

/// All tensors of a call, inputs before outputs.
[[nodiscard]] std::array<CallTensor, kForwardTensors> TensorsOf(const AttentionArgs& args);
[[nodiscard]] std::array<CallTensor, kBackwardTensors> TensorsOf(const AttentionGradArgs& args);
/// All but the lists of keys and values.
[[nodiscard]] std::array<CallTensor, kDecodeTensors> TensorsOf(const DecodeAttentionArgs& args);
/// One tensor of these lists.
[[nodiscard]] CallTensor KeyTensor(const char* name, const TensorView& tensor);
[[nodiscard]] std::array<CallTensor, kPromptTensors> TensorsOf(const PromptAttentionArgs& args);
[[nodiscard]] std::array<CallTensor, kSparseTensors> TensorsOf(const SparseAttentionArgs& args);
[[nodiscard]] std::array<CallTensor, kSparseGradTensors> TensorsOf(const SparseAttentionGradArgs& args);
[[nodiscard]] std::array<CallTensor, kIndexerTensors> TensorsOf(const LightningIndexerArgs& args);
[[nodiscard]] std::array<CallTensor, kIndexerGradTensors> TensorsOf(const LightningIndexerGradArgs& args);
[[nodiscard]] std::array<CallTensor, kSparseLossTensors> TensorsOf(const SparseIndexerLossArgs& args);
[[nodiscard]] std::array<CallTensor, kDenseLossTensors> TensorsOf(const DenseIndexerLossArgs& args);

/// Of checked tensors, in their order.
[[nodiscard]] std::vector<PlannedTensor> KeepPlanned(std::span<const CallTensor> tensors);

// Checks in Run.

/// The tensor is the planned one: shape, stride, type, presence.
[[nodiscard]] Status CheckPlanned(const CallTensor& got, const PlannedTensor& planned);
[[nodiscard]] Status CheckPlannedLengths(const char* name, std::span<const int64_t> got,
                                         std::span<const int64_t> planned);
/// The output shares no element with the other tensor.
[[nodiscard]] Status CheckApart(const CallTensor& output, const PlannedTensor& planned, const CallTensor& other,
                                const PlannedTensor& other_planned);
/// Of all tensors of a call: CheckPlanned; CheckApart of every output and every tensor before it.
[[nodiscard]] Status CheckAllPlanned(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);
[[nodiscard]] Status CheckAllApart(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);

}  // namespace fa::ops

#endif  // FA_OPS_CALL_TENSORS_H_
