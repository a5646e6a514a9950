#ifndef FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_
#define FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "files/input_files.h"
#include "files/mask_flags.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// The flags that say what a dense attention call reads: tensors and options, but no outputs.
struct AttentionFlags {
  std::string query, key, value, query_rope, key_rope;
  std::string layout = "BNSD", dtype;
  std::optional<int64_t> head_num;
  std::optional<float> scale;
  MaskFlags mask;
  std::string pse;
  int64_t pse_type = 1, q_start = 0, kv_start = 0;
  std::string drop_mask, seed, offset;
  float keep_prob = 1, softcap = 0;
  std::string sink;
  std::string actual_seq_qlen, actual_seq_kvlen;
  bool takes_int8 = false;  ///< query, key and value may be int8 too
};

/// Adds --query, --key, --value, --layout, --head-num, --dtype, --scale: the flags of every attention.
void AddOperandFlags(CLI::App& command, AttentionFlags& flags);
/// Adds --query-rope, --key-rope, masks, --pse with its type and starts, --sink and --softcap: what changes scores.
/// @param pse_types  what --pse-type says
void AddScoreFlags(CLI::App& command, AttentionFlags& flags, const char* pse_types);
/// Adds all flags.
void AddAttentionFlags(CLI::App& command, AttentionFlags& flags);

/// The files that were read and the flags' meaning. `args` points into this object, which therefore stays where it is.
class AttentionInputs {
 public:
  /// Throws UsageError, Failure.
  explicit AttentionInputs(const AttentionFlags& flags, InputFiles::Read read = InputFiles::Read::kAll);
  AttentionInputs(const AttentionInputs&) = delete;
  AttentionInputs& operator=(const AttentionInputs&) = delete;

  AttentionArgs args;  ///< inputs only
  AttentionOptions options;
  TensorSizes query, value;  ///< sizes of these tensors, for the shapes of outputs

  /// Reads a file of the call into this object; an empty path gives an absent tensor. LoadFloats wants f32, f16 or
  /// bf16, like the query.
  TensorView Load(const char* flag, const std::string& path) { return files_.Load(flag, path); }
  TensorView LoadFloats(const char* flag, const std::string& path) { return files_.LoadFloats(flag, path); }
  /// For what was not read yet (InputFiles::Read::kHeaders).
  [[nodiscard]] InputFiles& files() { return files_; }

 private:
  void LoadTensors(const AttentionFlags& flags);
  void ReadSizes(std::optional<int64_t> head_num);
  void ReadLengths(const AttentionFlags& flags);
  void ReadOptions(const AttentionFlags& flags);

  InputFiles files_;
  std::vector<int64_t> cu_q_, cu_kv_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_
