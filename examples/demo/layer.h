#ifndef FA_EXAMPLES_DEMO_LAYER_H_
#define FA_EXAMPLES_DEMO_LAYER_H_

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "check/forward_row.h"
#include "fa/fa.h"
#include "npy/npy_array.h"

namespace fa::demo {

/// One attention layer of the model: f32 activations [1, heads, tokens, head size], and the float64 output that PyTorch
/// computed from them.
struct Layer {
  npy::Array q, k, v, want;
  npy::Array out, softmax_max, softmax_sum;  ///< the output and statistics that fa computes

  [[nodiscard]] AttentionArgs Args();
};

/// Loads a file of 4 dimensions and this element type. Throws npy::IoError, npy::FormatError.
[[nodiscard]] npy::Array Load(const std::filesystem::path& path, npy::ElementType type);
[[nodiscard]] TensorView View(const npy::Array& array);
[[nodiscard]] MutableTensorView MutableView(npy::Array& array);

/// Returns the rows of one head of a [1, heads, tokens, head size] array.
[[nodiscard]] check::HeadRows HeadOf(const npy::Array& array, int64_t head);
/// Returns one row of the layer in double, with the bound that CompareWithFloat64 uses.
[[nodiscard]] check::ForwardRow ReferenceRow(const Layer& layer, int64_t head, int64_t token);

/// Returns layer `index` of the folder, or nothing if its query file is missing. Throws npy::IoError, npy::FormatError.
[[nodiscard]] std::optional<Layer> LoadLayer(const std::filesystem::path& folder, int index);

/// Returns the larger of two errors, or NaN if either is NaN.
[[nodiscard]] inline double WorseOf(double a, double b) { return b <= a || std::isnan(a) ? a : b; }

/// How far fa's output is from the float64 output.
struct Error {
  double max = 0;
  double rms = 0;
  /// The largest |error| / bound over all elements. If it is above 1, rounding does not explain the error.
  double of_bound = 0;
};

/// Compares every element with the file and with the bound of check::ComputeForwardRow. For f32, with u = 2^-24, A =
/// max_j |scale| sum_d |q_id k_jd| and W = sum_j P_ij |v_jd|, the bound is (2 (D + 6) u A + 2 S u + 8 u) W + u |O|.
[[nodiscard]] Error CompareWithFloat64(const Layer& layer);

}  // namespace fa::demo

#endif  // FA_EXAMPLES_DEMO_LAYER_H_
