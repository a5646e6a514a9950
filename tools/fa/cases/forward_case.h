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

/// The flags by which `fa plan` and `fa bench` describe a forward call. For a backward the flags describe the
/// backward's forward.
struct ForwardCaseFlags {
  std::string shape;
  std::string dtype = "f32", layout = "BNSD";
  bool takes_int8 = false;  ///< whether --dtype may be int8, as it may for prompt attention
  MaskFlags mask;
};

void AddForwardCaseFlags(CLI::App& command, ForwardCaseFlags& flags);

/// A call described by its sizes alone. In TND there are `batch` sequences, each of sq queries and sk keys. `args`
/// points into this object, which therefore cannot be copied.
class ForwardCase {
 public:
  /// Makes tensors without contents, which are enough to plan. Throws UsageError or Failure.
  explicit ForwardCase(const ForwardCaseFlags& flags);
  ForwardCase(const ForwardCase&) = delete;
  ForwardCase& operator=(const ForwardCase&) = delete;

  int64_t batch, heads, heads_kv, sq, sk, d, dv;
  DType dtype;
  AttentionArgs args;
  AttentionOptions options;
  std::string mask_text;

  /// Returns the sizes of the query tensor. In TND these are the sizes of one sequence.
  [[nodiscard]] TensorSizes QuerySizes() const { return {batch, sq, heads, d}; }
  [[nodiscard]] TensorSizes KeySizes() const { return {batch, sk, heads_kv, d}; }
  [[nodiscard]] TensorSizes ValueSizes() const { return {batch, sk, heads_kv, dv}; }
  [[nodiscard]] TensorSizes OutSizes() const { return {batch, sq, heads, dv}; }
  /// Returns the arguments of the call's backward, which asks for dq, dk and dv only.
  [[nodiscard]] AttentionGradArgs GradArgs() const;
  /// Returns B, N, Nkv, Sq, Sk, D and, if it differs from D, Dv.
  [[nodiscard]] std::vector<int64_t> Shape() const;
  [[nodiscard]] const Tensor* dense_mask() const { return dense_mask_ ? &*dense_mask_ : nullptr; }

 private:
  [[nodiscard]] Dims TensorShape(Layout layout, TensorSizes sizes) const;
  std::optional<Tensor> dense_mask_;
  std::optional<PairMask> block_mask_;
  std::vector<int64_t> cu_q_, cu_kv_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_FORWARD_CASE_H_
