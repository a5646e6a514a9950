#ifndef FA_TOOLS_FA_FILES_DECODE_INPUTS_H_
#define FA_TOOLS_FA_FILES_DECODE_INPUTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/decode_attention.h"
#include "files/input_files.h"
#include "files/mask_flags.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// The flags of a decode's inputs.
struct DecodeFlags {
  std::string query, key, value, query_rope, key_rope;
  std::string layout = "BNSD", dtype;
  std::optional<int64_t> head_num;
  std::optional<float> scale;
  MaskFlags mask;
  std::string pse;
  DecodeAttentionOptions numbers;  ///< of these options, only the numbers of FA_DECODE_NUMBERS are set
  std::string actual_seq_lengths, actual_seq_lengths_kv;
  std::string block_table;
  std::optional<int64_t> block_size;
  std::string k_scale, v_scale, k_offset, v_offset;
  std::string antiquant_scale, antiquant_offset;
  int64_t antiquant_mode = 0;
  std::string sink;
  std::string deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2, out_dtype;
};

void AddDecodeFlags(CLI::App& command, DecodeFlags& flags);

/// What a decode and a fused inference read from their files. Arguments point into this object, which therefore cannot
/// be copied.
struct InferenceFiles {
  /// Reads all files except the mask, and fills in `args` except cu_q and lengths_q. Throws UsageError or Failure.
  /// @param scaled  whether queries of 8 bits have scales, so that the output may have any float type
  InferenceFiles(const DecodeFlags& flags, DecodeAttentionArgs& args, bool scaled = false);
  InferenceFiles(const InferenceFiles&) = delete;
  InferenceFiles& operator=(const InferenceFiles&) = delete;

  InputFiles files;
  TensorView k, k_rope, v;
  std::vector<int64_t> lengths_q, lengths_kv;
  DType out_dtype;
};

/// The call that the flags and files describe. `args` points into this object, which therefore cannot be copied.
class DecodeInputs {
 public:
  /// Reads the files. Throws UsageError or Failure.
  explicit DecodeInputs(const DecodeFlags& flags);
  DecodeInputs(const DecodeInputs&) = delete;
  DecodeInputs& operator=(const DecodeInputs&) = delete;

  DecodeAttentionArgs args;  ///< the call's inputs; outputs are absent
  DecodeAttentionOptions options;
  TensorSizes query;  ///< sizes of q, from which the shapes of outputs follow
  int64_t dv = 0;

  [[nodiscard]] DType out_dtype() const { return read_.out_dtype; }

 private:
  void ReadSizes(std::optional<int64_t> head_num);
  void CheckBlockSize(const DecodeFlags& flags) const;

  InferenceFiles read_;
};

/// Returns the value of --antiquant-mode, which says whether scales of keys and values are per token. Throws
/// UsageError.
[[nodiscard]] Antiquant ParseAntiquant(int64_t mode);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_DECODE_INPUTS_H_
