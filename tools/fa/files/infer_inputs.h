#ifndef FA_TOOLS_FA_FILES_INFER_INPUTS_H_
#define FA_TOOLS_FA_FILES_INFER_INPUTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/infer_attention.h"
#include "files/decode_inputs.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// The flags of a fused inference's inputs: the flags of a decode, and more.
struct InferFlags {
  DecodeFlags decode;
  int64_t heads_kv = 0;
  std::string q_scale, code_dtype = "i8";
  std::string k_prefix, v_prefix;
  std::optional<int64_t> length_prefix, q_padding, kv_padding;
  std::string lse_without_keys = "-inf";
};

void AddInferFlags(CLI::App& command, InferFlags& flags);

/// Returns the layout of fused inference with this name. Throws UsageError.
[[nodiscard]] Layout ParseInferLayout(const std::string& text);

/// The call that the flags and files describe. `args` points into this object, which therefore cannot be copied.
class InferInputs {
 public:
  /// Reads the files. Throws UsageError or Failure.
  explicit InferInputs(const InferFlags& flags);
  InferInputs(const InferInputs&) = delete;
  InferInputs& operator=(const InferInputs&) = delete;

  InferAttentionArgs args;  ///< the call's inputs; outputs are absent
  InferAttentionOptions options;
  TensorSizes query;  ///< sizes of q, from which the shapes of outputs follow
  int64_t dv = 0;

  [[nodiscard]] DType out_dtype() const { return read_.out_dtype; }

 private:
  void TakeMask(const MaskFlags& flags);
  void TakeBlockMask(const MaskFlags& flags);
  void TakeCodes(const std::string& dtype);
  void ReadSizes();
  [[nodiscard]] int64_t MostKeys() const;
  [[nodiscard]] bool packed() const;

  InferenceFiles read_;
  std::optional<PairMask> block_mask_;
  std::vector<int64_t> length_prefix_;
  int64_t q_padding_ = 0, kv_padding_ = 0;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_INFER_INPUTS_H_
