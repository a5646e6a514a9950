#ifndef FA_TOOLS_FA_CASES_FORWARD_CASE_H_
#define FA_TOOLS_FA_CASES_FORWARD_CASE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "files/mask_flags.h"
#include "files/tensors.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// What `fa plan` and `fa bench` are told about a forward, or about the forward whose gradients they are asked for.
struct ForwardCaseFlags {
  std::string shape;
  std::string dtype = "f32", layout = "BNSD";
  bool takes_int8 = false;  ///< of prompt attention
  MaskFlags mask;
};

void AddForwardCaseFlags(CLI::App& command, ForwardCaseFlags& flags);

/// A call described by its sizes alone. TND: `batch` sequences, all of sq queries and sk keys.
/// `args` points into this object, which therefore stays where it is.
class ForwardCase {
 public:
  /// Tensors have a placeholder for data, enough to plan. Throws UsageError, Failure.
  explicit ForwardCase(const ForwardCaseFlags& flags);
  ForwardCase(const ForwardCase&) = delete;
  ForwardCase& operator=(const ForwardCase&) = delete;

  int64_t batch, heads, heads_kv, sq, sk, d, dv;
  DType dtype;
  AttentionArgs args;
  AttentionOptions options;
  std::string mask_text;

  /// The sizes of one sequence's tensor in TND, of the whole tensor in other layouts.
  [[nodiscard]] TensorSizes QuerySizes() const { return {batch, sq, heads, d}; }
  [[nodiscard]] TensorSizes KeySizes() const { return {batch, sk, heads_kv, d}; }
  [[nodiscard]] TensorSizes ValueSizes() const { return {batch, sk, heads_kv, dv}; }
  [[nodiscard]] TensorSizes OutSizes() const { return {batch, sq, heads, dv}; }
  /// The backward of the call: dq, dk and dv, no other gradient.
  [[nodiscard]] AttentionGradArgs GradArgs() const;
  /// B, N, Nkv, Sq, Sk, D and, if it differs from D, Dv.
  [[nodiscard]] std::vector<int64_t> Shape() const;
  [[nodiscard]] const Tensor* dense_mask() const { return dense_mask_ ? &*dense_mask_ : nullptr; }

 private:
  [[nodiscard]] Dims TensorShape(Layout layout, TensorSizes sizes) const;
  std::optional<Tensor> dense_mask_;
  std::vector<int64_t> cu_q_, cu_kv_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_FORWARD_CASE_H_
