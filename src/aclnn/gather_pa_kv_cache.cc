// Implements aclnnGatherPaKvCache with fa::PlanGatherRows.
#include <memory>
#include <utility>

#include "aclnn/operations/cache_types.h"
#include "aclnn/operations/tensor_operation.h"
#include "aclnnop/aclnn_gather_pa_kv_cache.h"
#include "fa/cache_rows.h"

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnGatherPaKvCacheGetWorkspaceSize(const aclTensor* keyCache, const aclTensor* valueCache,
                                                 const aclTensor* blockTables, const aclTensor* seqLens,
                                                 aclTensor* keyRef, aclTensor* valueRef,
                                                 const aclTensor* seqOffsetOptional, char* cacheMode,
                                                 bool isSeqLensCumsum, uint64_t* workspaceSize,
                                                 aclOpExecutor** executor) {
  using Args = fa::GatherRowsArgs;
  using Form = Operands::Form;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"keyCache", keyCache},
                                            {"valueCache", valueCache},
                                            {"blockTables", blockTables},
                                            {"seqLens", seqLens},
                                            {"keyRef", keyRef},
                                            {"valueRef", valueRef},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto form = CacheFormOf(cacheMode);
    if (!form.ok()) return Report(form.status());
    fa::Status status = CheckSameType("keyCache", keyCache, "keyRef", keyRef);
    if (status.ok()) status = CheckSameType("valueCache", valueCache, "valueRef", valueRef);
    if (!status.ok()) return Report(status);
    auto operation = std::make_shared<TensorOperation<Args, fa::GatherRowsOptions>>(fa::PlanGatherRows, Names::kGather);
    operation->options = {.form = *form, .cumulative = isSeqLensCumsum};
    operation->Input("keyCache", keyCache, &Args::key_cache, CacheOperandForm(*form));
    operation->Input("valueCache", valueCache, &Args::value_cache, CacheOperandForm(*form));
    operation->Input("blockTables", blockTables, &Args::block_table, Form::kAnyStride);
    operation->Input("seqLens", seqLens, &Args::seq_lens, Form::kAnyStride);
    operation->Output("keyRef", keyRef, &Args::key, Form::kBytes);
    operation->Output("valueRef", valueRef, &Args::value, Form::kBytes);
    operation->OptionalInput("seqOffset", seqOffsetOptional, &Args::seq_offset, Form::kAnyStride);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

aclnnStatus aclnnGatherPaKvCache(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) {
  return Execute(workspace, workspaceSize, executor, stream);
}
