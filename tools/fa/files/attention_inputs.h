#ifndef FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_
#define FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "fa/flash_attention.h"
#include "files/input_files.h"
#include "files/mask_flags.h"
#include "flags/flag_names.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// The flags of a dense attention call's inputs: tensors and options, but no outputs.
struct AttentionFlags {
  std::string query, key, value, query_rope, key_rope;
  std::string layout = "BNSD", dtype;
  std::optional<int64_t> head_num;
  std::optional<float> scale;
  MaskFlags mask;
  std::string pse;
  int64_t pse_type = 1;
  std::string drop_mask, seed, offset;
  AttentionOptions numbers;  ///< of these options, only the numbers of FA_DENSE_NUMBERS are set
  std::string sink;
  std::string actual_seq_qlen, actual_seq_kvlen;
  bool takes_int8 = false;  ///< query, key and value may be int8 too
};

/// Adds the flags that every command of attention has: --query, --key, --value, --layout, --head-num, --dtype, --scale.
void AddOperandFlags(CLI::App& command, AttentionFlags& flags);
/// Adds a flag for each number that fa/options.h lists for this type of options, such as --q-start.
template <typename Options, typename... Only>
void AddNumberFlags(CLI::App& command, Options& options, const Only&... only) {
  const auto add = [&](const char* name, const char* text, auto& number, const auto&...) {
    CLI::Option* option = command.add_option(FlagOf(name), number, text);
    if (std::is_integral_v<std::remove_reference_t<decltype(number)>>) option->type_name("N");
  };
  ForEachNumber(add, options, only...);
}
/// Adds the flags that change scores and are no numbers: --query-rope, --key-rope, masks, --pse with its type, --sink.
/// @param pse_types  the help text of --pse-type
void AddScoreFlags(CLI::App& command, AttentionFlags& flags, const char* pse_types);
/// Adds every flag of AttentionFlags.
void AddAttentionFlags(CLI::App& command, AttentionFlags& flags);

/// The call that the flags and files describe. `args` points into this object, which therefore cannot be copied.
class AttentionInputs {
 public:
  /// Reads the files, or only their headers. Throws UsageError or Failure.
  explicit AttentionInputs(const AttentionFlags& flags, InputFiles::Read read = InputFiles::Read::kAll);
  AttentionInputs(const AttentionInputs&) = delete;
  AttentionInputs& operator=(const AttentionInputs&) = delete;

  AttentionArgs args;  ///< the call's inputs; outputs are absent
  AttentionOptions options;
  TensorSizes query, value;  ///< sizes of q and v, from which the shapes of outputs follow

  /// Reads a file of the call into this object. If the path is empty, the tensor is absent. LoadFloats accepts only
  /// f32, f16 or bf16 files.
  TensorView Load(const char* flag, const std::string& path) { return files_.Load(flag, path); }
  TensorView LoadFloats(const char* flag, const std::string& path) { return files_.LoadFloats(flag, path); }
  /// Returns the files. If only headers were read, the caller reads the data through this object.
  [[nodiscard]] InputFiles& files() { return files_; }

 private:
  void LoadTensors(const AttentionFlags& flags);
  void ReadSizes(std::optional<int64_t> head_num);
  void ReadLengths(const AttentionFlags& flags);
  void ReadOptions(const AttentionFlags& flags);
  void ReadBlockMask(const MaskFlags& flags);

  InputFiles files_;
  std::vector<int64_t> cu_q_, cu_kv_;
  std::optional<PairMask> block_mask_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FILES_ATTENTION_INPUTS_H_
