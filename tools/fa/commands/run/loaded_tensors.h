#ifndef FA_TOOLS_FA_COMMANDS_RUN_LOADED_TENSORS_H_
#define FA_TOOLS_FA_COMMANDS_RUN_LOADED_TENSORS_H_

#include <CLI/CLI.hpp>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "files/tensors.h"
#include "flags/context_flags.h"
#include "flags/flag_values.h"

namespace fa::tool {

/// Tensors that a command has read. Views of them stay valid.
class LoadedTensors {
 public:
  explicit LoadedTensors(const std::string& dtype)
      : dtype_(dtype.empty() ? std::optional<DType>() : ParseFloatType(dtype)) {}

  /// Reads a file and returns its tensor, or an absent tensor if `path` is empty.
  TensorView Load(const char* flag, const std::string& path) {
    if (path.empty()) return {};
    tensors_.push_back(LoadTensor(flag, path, dtype_));
    return tensors_.back().View();
  }
  std::vector<TensorView> LoadAll(const char* flag, const std::vector<std::string>& paths) {
    std::vector<TensorView> views;
    for (const std::string& path : paths) views.push_back(Load(flag, path));
    return views;
  }
  /// Returns the tensor that the last call of Load read.
  [[nodiscard]] Tensor& last() { return tensors_.back(); }

 private:
  std::optional<DType> dtype_;
  std::deque<Tensor> tensors_;
};

/// Adds a command's flags that name files, and the flags that all commands with such files share.
class FileFlags {
 public:
  FileFlags(CLI::App& run, const char* name, const char* text) : command_(run.add_subcommand(name, text)) {}

  void Needed(const char* flag, std::string& path, const char* text) {
    command_->add_option(flag, path, text)->type_name("NPY")->required();
  }
  void Optional(const char* flag, std::string& path, const char* text) {
    command_->add_option(flag, path, text)->type_name("NPY");
  }
  void List(const char* flag, std::vector<std::string>& paths, const char* text) {
    command_->add_option(flag, paths, text)->type_name("NPY")->required()->expected(1, -1);
  }
  CLI::App& End(std::string& dtype, ContextFlags& context) {
    command_->add_option("--dtype", dtype, "bf16: uint16 files are bf16 bits")->type_name("f32|f16|bf16");
    AddContextFlags(*command_, context);
    return *command_;
  }
  CLI::App& command() { return *command_; }

 private:
  CLI::App* command_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_RUN_LOADED_TENSORS_H_
