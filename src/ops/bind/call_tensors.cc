#include "ops/bind/call_tensors.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "ops/bind/tensor_members.h"

namespace fa::ops {
namespace {

template <typename View>
CallTensor Placed(const char* name, const View& tensor, bool required, bool output) {
  return {name, tensor.data, tensor.dtype, &tensor.shape, &tensor.stride, required, output};
}

/// Makes a tensor of the attention count as absent. An indexer loss with p_head_mean does not read the tensors of the
/// attention.
void ForgetAttention(CallTensor& tensor) {
  for (const std::string_view name : {"q", "k", "q_rope", "k_rope", "softmax_max", "softmax_sum"}) {
    if (tensor.name != name) continue;
    tensor.data = nullptr;
    tensor.required = false;
  }
}

template <typename Args>
CallTensors Tensors(const Args& args) {
  static constexpr auto kMembers = TensorMembers<Args>();
  std::array<CallTensor, kMembers.size()> tensors;
  for (size_t i = 0; i < kMembers.size(); ++i) {
    const auto& [name, input, output, required] = kMembers[i];
    tensors[i] =
        input != nullptr ? Placed(name, args.*input, required, false) : Placed(name, args.*output, required, true);
  }
  if constexpr (std::is_same_v<Args, SparseIndexerLossArgs>) {
    if (args.p_head_mean.data != nullptr) std::for_each(tensors.begin(), tensors.end(), ForgetAttention);
  }
  return tensors;
}

}  // namespace

#define FA_TENSORS_OF(name, function, Args, Options, text) \
  CallTensors TensorsOf(const Args& args) { return Tensors(args); }
FA_OPERATORS(FA_TENSORS_OF)
#undef FA_TENSORS_OF

CallTensor ListedTensor(const char* name, const TensorView& tensor) { return Placed(name, tensor, true, false); }

}  // namespace fa::ops
