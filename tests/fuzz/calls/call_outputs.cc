#include "fuzz/calls/call_outputs.h"

#include "fuzz/calls/moved_tensors.h"

namespace fa::test {

CallOutputs::CallOutputs(FuzzCall* call) {
  for (const TensorField& field : call->Tensors()) {
    if (field.is_output() && !field.absent()) {
      outputs_.push_back({field.name(), field.view().dtype, ElementsOf(field.view())});
    }
  }
}

std::string CallOutputs::FirstDifference(const CallOutputs& other) const {
  for (size_t x = 0; x < outputs_.size(); ++x) {
    if (!SameElements(outputs_[x].dtype, outputs_[x].elements, other.outputs_[x].elements)) return outputs_[x].name;
  }
  return {};
}

CallOutputs OutputsOf(FuzzCall* call, Context* context) {
  call->TakeSnapshot().Forget();
  call->RestoreInputs();
  const Status status = call->Run(context, {});
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << call->Describe();
  return CallOutputs(call);
}

}  // namespace fa::test
