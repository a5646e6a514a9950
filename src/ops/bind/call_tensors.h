#ifndef FA_OPS_CALL_TENSORS_H_
#define FA_OPS_CALL_TENSORS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/merge.h"
#include "fa/prompt_flash_attention.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// One tensor of a call of any operator; it points into the arguments. A `required` tensor may have null data while
/// planning; another tensor with null data is absent.
struct CallTensor {
  const char* name;  ///< in errors
  const void* data;
  DType dtype;
  const Dims* shape;
  const Dims* stride;
  bool required;
  bool output;
};

/// What a plan keeps of a tensor, to compare in Run. If the tensor is absent, only `present` has a meaning.
struct PlannedTensor {
  bool present = false;
  DType dtype = DType::kF32;
  Dims shape, stride;
  int64_t span_bytes = 0;  ///< from the first to past the last byte
};

/// The tensors of a call, in place.
class CallTensors {
 public:
  static constexpr size_t kMost = 24;

  template <size_t kCount>
  CallTensors(const std::array<CallTensor, kCount>& tensors) : count_(kCount) {  // NOLINT(google-explicit-constructor)
    static_assert(kCount <= kMost);
    std::copy(tensors.begin(), tensors.end(), tensors_.begin());
  }
  [[nodiscard]] const CallTensor* begin() const { return tensors_.data(); }
  [[nodiscard]] const CallTensor* end() const { return tensors_.data() + count_; }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] const CallTensor& operator[](size_t i) const { return tensors_[i]; }

 private:
  std::array<CallTensor, kMost> tensors_;  // set up to count_: the rest would cost a small call a twentieth
  size_t count_;
};

/// All tensors of a call, inputs before outputs.
[[nodiscard]] CallTensors TensorsOf(const AttentionArgs& args);
[[nodiscard]] CallTensors TensorsOf(const AttentionGradArgs& args);
/// All tensors but the lists of keys and values.
[[nodiscard]] CallTensors TensorsOf(const DecodeAttentionArgs& args);
/// One tensor of these lists.
[[nodiscard]] CallTensor KeyTensor(const char* name, const TensorView& tensor);
[[nodiscard]] CallTensors TensorsOf(const PromptAttentionArgs& args);
[[nodiscard]] CallTensors TensorsOf(const SparseAttentionArgs& args);
[[nodiscard]] CallTensors TensorsOf(const SparseAttentionGradArgs& args);
[[nodiscard]] CallTensors TensorsOf(const LightningIndexerArgs& args);
[[nodiscard]] CallTensors TensorsOf(const LightningIndexerGradArgs& args);
[[nodiscard]] CallTensors TensorsOf(const DenseIndexerLseArgs& args);
[[nodiscard]] CallTensors TensorsOf(const SparseIndexerLossArgs& args);
[[nodiscard]] CallTensors TensorsOf(const DenseIndexerLossArgs& args);
[[nodiscard]] CallTensors TensorsOf(const MergeArgs& args);

/// What a plan keeps of checked tensors, in their order.
[[nodiscard]] std::vector<PlannedTensor> KeepPlanned(std::span<const CallTensor> tensors);

// Checks in Run.

/// Checks that the tensor is the planned one: shape, stride, type, presence.
[[nodiscard]] Status CheckPlanned(const CallTensor& got, const PlannedTensor& planned);
[[nodiscard]] Status CheckPlannedLengths(const char* name, std::span<const int64_t> got,
                                         std::span<const int64_t> planned);
/// Checks that the output shares no element with the other tensor.
[[nodiscard]] Status CheckApart(const CallTensor& output, const PlannedTensor& planned, const CallTensor& other,
                                const PlannedTensor& other_planned);
/// For all tensors of a call: CheckPlanned, and CheckApart for every output and every tensor before it.
[[nodiscard]] Status CheckAllPlanned(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);
[[nodiscard]] Status CheckAllApart(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);

}  // namespace fa::ops

#endif  // FA_OPS_CALL_TENSORS_H_
