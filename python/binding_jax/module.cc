// The extension module fa._xla holds the handlers of XLA's foreign function interface that fa.jax registers. A handler
// keeps no state and never calls Python.
#include <nanobind/nanobind.h>

#include "calls.h"
#include "fa/version.h"

namespace nb = nanobind;

NB_MODULE(_xla, module) {
  module.attr("__version__") = FA_VERSION_STRING;
  module.attr("CALL_VERSION") = fa::xla_calls::kCallVersion;
  const auto handler = [](XLA_FFI_Handler* function) { return nb::capsule(reinterpret_cast<void*>(function)); };
  module.attr("fa_attention_forward") = handler(fa::xla_calls::ForwardHandler());
  module.attr("fa_attention_backward") = handler(fa::xla_calls::BackwardHandler());
}
