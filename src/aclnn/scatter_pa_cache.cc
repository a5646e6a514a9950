// Implements aclnnScatterPaKvCache and aclnnScatterPaCache with fa::PlanScatterRows.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aclnn/operations/cache_types.h"
#include "aclnn/operations/tensor_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnnop/aclnn_scatter_pa_cache.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"
#include "fa/cache_rows.h"

namespace fa::aclnn {
namespace {

using Form = Operands::Form;
using Scatter = TensorOperation<ScatterRowsArgs, ScatterRowsOptions>;

struct ScatterTensors {
  const aclTensor *key, *key_cache, *slot_mapping, *value = nullptr, *value_cache = nullptr;
  const aclTensor *compress_lens, *compress_seq_offset, *seq_lens;
};

struct ScatterModes {
  const char* cache;
  const char* scatter = nullptr;
  const aclIntArray *strides = nullptr, *offsets = nullptr;
};

constexpr const char* kNotServed = " is not served (compressed heads: scenes 3, 4 and 5)";

Status CheckScene(const ScatterTensors& tensors) {
  const std::pair<const char*, const aclTensor*> refused[] = {{"compressLens", tensors.compress_lens},
                                                              {"compressSeqOffset", tensors.compress_seq_offset},
                                                              {"seqLens", tensors.seq_lens}};
  for (const auto& [name, tensor] : refused) {
    if (tensor != nullptr) return Status::InvalidArgument(std::string(name) + kNotServed);
  }
  const auto key = FindTensor(tensors.key);
  if (key != nullptr && key->shape.rank() == 4) {
    return Status::InvalidArgument(std::string("key: a tensor of 4 dimensions") + kNotServed);
  }
  return Status::Ok();
}

Result<CacheForm> FormOf(const ScatterModes& modes) {
  const std::string_view scatter = modes.scatter == nullptr ? "None" : modes.scatter;
  if (scatter == "Alibi" || scatter == "Rope" || scatter == "Omni") {
    return Status::InvalidArgument("scatterMode=\"" + std::string(scatter) + "\"" + kNotServed);
  }
  const auto form = CacheFormOf(modes.cache);
  if (!form.ok()) return form.status();
  if (scatter == "None" || scatter.empty()) return form;
  if (*form == CacheForm::kBnBsND && scatter == "Nct") return form;
  if (*form == CacheForm::kBnBsND && scatter == "NHSD") return CacheForm::kBnNBsD;
  return Status::InvalidArgument(
      "scatterMode=\"" + std::string(scatter) + "\", want " +
      (*form == CacheForm::kNZ ? "\"None\" (cacheMode \"PA_NZ\")" : "\"None\", \"Nct\" or \"NHSD\""));
}

/// Adds the distance between the first and the last element of a dimension. Returns whether the sum fits into 63 bits.
bool AddReach(int64_t size, int64_t stride, int64_t* sum) {
  int64_t reach = 0;
  return !__builtin_mul_overflow(size - 1, stride, &reach) && !__builtin_add_overflow(*sum, reach, sum);
}

/// Returns how many elements of memory the tensor may use, counted from its first element. Returns nothing for a tensor
/// without elements, or with strides that are refused elsewhere.
std::optional<int64_t> ExtentOf(const aclTensor& tensor, const Dims& stride) {
  int64_t last = 1;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (tensor.shape[i] < 1 || stride[i] < 0 || !AddReach(tensor.shape[i], stride[i], &last)) return std::nullopt;
  }
  return std::max(last, tensor.storage_elements - tensor.offset);
}

/// Makes row t of an input begin at element offsets[i] + t * strides[i], as scatterMode "Nct" says.
Status MoveRows(const char* name, const aclTensor* handle, const std::vector<int64_t>& strides,
                const std::vector<int64_t>& offsets, size_t i, TensorView ScatterRowsArgs::*member,
                Scatter* operation) {
  const auto tensor = FindTensor(handle);
  if (tensor == nullptr || tensor->shape.rank() != 3) return Status::Ok();  // another check refuses the tensor
  if (strides.size() <= i || offsets.size() <= i) {
    return Status::InvalidArgument(std::string(strides.size() <= i ? "strides" : "offsets") +
                                   ": want one entry for key and one for value (scatterMode \"Nct\")");
  }
  Dims own = tensor->stride.empty() ? DenseStride(tensor->shape) : tensor->stride;
  const std::optional<int64_t> extent = ExtentOf(*tensor, own);
  if (!extent) return Status::Ok();
  const std::string at = "[" + std::to_string(i) + "]=";
  const int64_t offset = offsets[i], stride = strides[i];
  if (offset < 0 || offset >= *extent) {
    return Status::InvalidArgument("offsets" + at + std::to_string(offset) + ", want 0.." +
                                   std::to_string(*extent - 1) + " (elements of " + name + ")");
  }
  own[0] = stride;
  int64_t end = offset + 1;  // past the last element of the last row
  bool counts = stride >= 0;
  for (int dim = 0; dim < 3 && counts; ++dim) counts = AddReach(tensor->shape[dim], own[dim], &end);
  if (!counts || end > *extent) {
    return Status::InvalidArgument("strides" + at + std::to_string(stride) + ", want rows inside the " +
                                   std::to_string(*extent) + " elements of " + name);
  }
  operation->Move(member, offset, stride);
  return Status::Ok();
}

Status ReadNct(const ScatterTensors& tensors, const ScatterModes& modes, bool has_value, Scatter* operation) {
  if (modes.scatter == nullptr || std::string_view(modes.scatter) != "Nct") return Status::Ok();
  const auto strides = ValuesOf("strides", modes.strides), offsets = ValuesOf("offsets", modes.offsets);
  if (!strides.ok()) return strides.status();
  if (!offsets.ok()) return offsets.status();
  FA_RETURN_IF_ERROR(MoveRows("key", tensors.key, *strides, *offsets, 0, &ScatterRowsArgs::key, operation));
  if (!has_value) return Status::Ok();
  return MoveRows("value", tensors.value, *strides, *offsets, 1, &ScatterRowsArgs::value, operation);
}

aclnnStatus PrepareScatter(const ScatterTensors& tensors, const ScatterModes& modes, uint64_t* workspace_size,
                           aclOpExecutor** executor) {
  if (Status status = CheckScene(tensors); !status.ok()) return Report(status);
  const auto form = FormOf(modes);
  if (!form.ok()) return Report(form.status());
  const Form caches = CacheOperandForm(*form);
  auto operation = std::make_shared<Scatter>(PlanScatterRows, Names::kScatter);
  operation->options.form = *form;
  operation->Input("key", tensors.key, &ScatterRowsArgs::key, Form::kBytes);
  operation->Output("keyCacheRef", tensors.key_cache, &ScatterRowsArgs::key_cache, caches);
  operation->Input("slotMapping", tensors.slot_mapping, &ScatterRowsArgs::slot_mapping, Form::kAnyStride);
  const bool has_value = HasElements(tensors.value);
  if (has_value) {
    operation->Input("value", tensors.value, &ScatterRowsArgs::value, Form::kBytes);
    operation->Output("valueCacheRef", tensors.value_cache, &ScatterRowsArgs::value_cache, caches);
  } else {
    operation->Ignored("value", tensors.value);
    operation->Ignored("valueCacheRef", tensors.value_cache, /*output=*/true);
  }
  Status status = operation->status();
  if (status.ok()) status = CheckSameType("key", tensors.key, "keyCacheRef", tensors.key_cache);
  if (status.ok() && has_value) status = CheckSameType("value", tensors.value, "valueCacheRef", tensors.value_cache);
  if (status.ok()) status = ReadNct(tensors, modes, has_value, operation.get());
  if (!status.ok()) return Report(status);
  return Release(std::move(operation), workspace_size, executor);
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(const aclTensor* key, aclTensor* keyCacheRef,
                                                  const aclTensor* slotMapping, const aclTensor* value,
                                                  aclTensor* valueCacheRef, const aclTensor* compressLensOptional,
                                                  const aclTensor* compressSeqOffsetOptional,
                                                  const aclTensor* seqLensOptional, char* cacheModeOptional,
                                                  char* scatterModeOptional, const aclIntArray* stridesOptional,
                                                  const aclIntArray* offsetsOptional, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"key", key},
                                            {"keyCacheRef", keyCacheRef},
                                            {"slotMapping", slotMapping},
                                            {"value", value},
                                            {"valueCacheRef", valueCacheRef},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    return PrepareScatter({.key = key,
                           .key_cache = keyCacheRef,
                           .slot_mapping = slotMapping,
                           .value = value,
                           .value_cache = valueCacheRef,
                           .compress_lens = compressLensOptional,
                           .compress_seq_offset = compressSeqOffsetOptional,
                           .seq_lens = seqLensOptional},
                          {cacheModeOptional, scatterModeOptional, stridesOptional, offsetsOptional}, workspaceSize,
                          executor);
  });
}

aclnnStatus aclnnScatterPaKvCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                  aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnScatterPaCacheGetWorkspaceSize(const aclTensor* key, aclTensor* keyCacheRef,
                                                const aclTensor* slotMapping, const aclTensor* compressLensOptional,
                                                const aclTensor* compressSeqOffsetOptional,
                                                const aclTensor* seqLensOptional, char* cacheMode,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"key", key},
                                            {"keyCacheRef", keyCacheRef},
                                            {"slotMapping", slotMapping},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    return PrepareScatter({.key = key,
                           .key_cache = keyCacheRef,
                           .slot_mapping = slotMapping,
                           .compress_lens = compressLensOptional,
                           .compress_seq_offset = compressSeqOffsetOptional,
                           .seq_lens = seqLensOptional},
                          {.cache = cacheMode}, workspaceSize, executor);
  });
}

aclnnStatus aclnnScatterPaCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}
