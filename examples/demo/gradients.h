#ifndef FA_EXAMPLES_DEMO_GRADIENTS_H_
#define FA_EXAMPLES_DEMO_GRADIENTS_H_

#include <filesystem>
#include <optional>

#include "fa/fa.h"
#include "layer.h"
#include "npy/npy_array.h"

namespace fa::demo {

/// The backward of one layer. It has the f32 gradient of the output, and the float64 gradients of PyTorch's autograd.
struct Gradients {
  npy::Array d_out, want_dq, want_dk, want_dv;
  npy::Array dq, dk, dv;  ///< the gradients that fa computes

  /// Returns the arguments of the backward, with the results of fa's own forward.
  [[nodiscard]] AttentionGradArgs Args(const Layer& layer);
};

/// Returns the gradients of layer `index`, or nothing if the file layer<i>_dout.npy is missing. Throws npy::IoError,
/// npy::FormatError.
[[nodiscard]] std::optional<Gradients> LoadGradients(const std::filesystem::path& folder, int index,
                                                     const Layer& layer);

/// The largest |error| of each gradient, divided by the largest value of that gradient.
struct GradientErrors {
  double dq = 0, dk = 0, dv = 0;
  /// The largest |error| / bound over all elements of the three gradients. If it is above 1, rounding does not explain
  /// the error.
  double of_bound = 0;
};

/// Compares every element with the files. check::ComputeQueryGradient and ComputeKeyGradients give the bounds, with the
/// errors that check::ComputeForwardRow allows for the forward's results.
[[nodiscard]] GradientErrors CompareWithFloat64(const Layer& layer, const Gradients& gradients);

}  // namespace fa::demo

#endif  // FA_EXAMPLES_DEMO_GRADIENTS_H_
