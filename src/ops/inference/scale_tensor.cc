#include "ops/inference/scale_tensor.h"

#include "ops/bind/argument_error.h"

namespace fa::ops {

Status CheckPresence(const WantedScale& want) {
  const bool given = want.tensor.data != nullptr;
  if (given ? want.need != Need::kForbidden : want.need != Need::kRequired) return Status::Ok();
  return Status::InvalidArgument(Arg(want.name).Says(given ? "given, want none (" : "missing, want it (") +
                                 want.reason + ")");
}

int64_t ElementsOf(const TensorView& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  return elements;
}

}  // namespace fa::ops
