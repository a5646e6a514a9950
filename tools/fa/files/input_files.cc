#include "files/input_files.h"

#include <utility>

#include "flags/flag_values.h"

namespace fa::tool {

InputFiles::InputFiles(const std::string& dtype) {
  if (!dtype.empty()) dtype_ = ParseFloatType(dtype);
}

TensorView InputFiles::Load(const char* flag, const std::string& path) {
  if (path.empty()) return {};
  return Keep(LoadTensor(flag, path, dtype_));
}

TensorView InputFiles::LoadFloats(const char* flag, const std::string& path, bool int8_too) {
  if (path.empty()) return {};
  return Keep(LoadActivations(flag, path, dtype_, int8_too));
}

TensorView InputFiles::Keep(Tensor tensor) { return tensors_.emplace_back(std::move(tensor)).View(); }

}  // namespace fa::tool
