#ifndef FA_TOOLS_FA_CASES_SHARED_KV_CASE_H_
#define FA_TOOLS_FA_CASES_SHARED_KV_CASE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "check/gradients.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "files/tensors.h"

namespace fa::tool {

/// The flags by which `fa plan` and `fa bench` describe a call of attention over original and compressed keys.
struct SharedKvCaseFlags {
  std::string shape, dtype = "bf16";
  int64_t ratio = 4, window = 128;
};

/// Adds the flags. The default sizes are those of DeepSeek-V4, with `rows` query tokens.
void AddSharedKvCaseFlags(CLI::App& command, int64_t rows, SharedKvCaseFlags& flags);

/// A call described by its sizes alone, in layout BSND. Each token has a window of original keys that ends at the
/// token, and a list of K compressed keys; with K = 0 the token has all compressed keys before it.
class SharedKvCase {
 public:
  /// Makes a case whose tensors are given but have no contents, which is enough to plan. Throws UsageError.
  explicit SharedKvCase(const SharedKvCaseFlags& flags);

  int64_t batch = 0, heads = 0, s1 = 0, s2 = 0, d = 0, k = 0;
  int64_t ratio, window;
  DType dtype;
  std::vector<int64_t> shape;  ///< the sizes that --shape gives

  [[nodiscard]] SharedKvArgs ForwardArgs() const;
  [[nodiscard]] SharedKvGradArgs BackwardArgs() const;
  [[nodiscard]] SharedKvOptions Options() const {
    return {.cmp_ratio = ratio, .ori_mask = SparseMask::kBand, .window_left = window - 1, .window_right = 0};
  }
  [[nodiscard]] int64_t compressed() const { return s2 / ratio; }  ///< number of compressed keys
  [[nodiscard]] int64_t Position(int64_t token) const { return s2 - s1 + token + 1; }
  /// Returns the number of compressed keys before a token.
  [[nodiscard]] int64_t Limit(int64_t token) const;
  [[nodiscard]] std::string MaskText() const;
};

/// The tensors of a SharedKvCase in memory. Inputs are random and the same in every run.
class SharedKvData {
 public:
  explicit SharedKvData(const SharedKvCase& shared);

  [[nodiscard]] SharedKvArgs ForwardArgs();
  /// Runs the forward, then returns the backward's arguments. Throws Failure.
  [[nodiscard]] SharedKvGradArgs BackwardArgs(Context& context);
  /// Runs the forward, then returns the arguments of a call for the L1 norm of the compressed keys alone. Throws
  /// Failure.
  [[nodiscard]] SharedKvGradArgs NormArgs(Context& context);
  /// Returns the bytes of keys, with or without the original ones. A row counts once for every query that has it.
  [[nodiscard]] double gathered_bytes(bool originals = true) const;
  /// CheckForward, CheckBackward and CheckNorm compare some rows with a double-precision computation from the same
  /// inputs. They throw Failure if an element is wrong.
  void CheckForward() const;
  void CheckBackward() const;
  void CheckNorm() const;

 private:
  [[nodiscard]] int64_t keys() const { return case_.s2 + case_.compressed(); }
  [[nodiscard]] bool Has(int64_t batch, int64_t token, int64_t key) const;
  [[nodiscard]] check::HeadRows Head(const Tensor& tensor, int64_t batch, int64_t head, int64_t rows,
                                     int64_t heads) const;
  [[nodiscard]] check::BackwardHead BackwardHead(int64_t batch, int64_t head) const;
  [[nodiscard]] double scale() const;
  /// Returns the compressed key of an entry of a token's list, or -1. Without lists entries are keys.
  [[nodiscard]] int64_t KeyOf(int64_t batch, int64_t token, int64_t entry) const;

  const SharedKvCase& case_;
  Tensor q_, ori_, cmp_, lists_, out_, lse_;
  Tensor all_keys_;  // the original keys of each batch element, and then its compressed keys
  Tensor d_out_, dq_, d_ori_, d_cmp_, norm_;
  std::vector<int64_t> residual_;  // per batch element, the tokens after those of its last compressed key
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_SHARED_KV_CASE_H_
