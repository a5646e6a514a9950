#include "files/output_tensors.h"

#include <utility>

namespace fa::tool {

std::vector<OutputSpec> Named(std::vector<OutputSpec> outputs) {
  std::erase_if(outputs, [](const OutputSpec& output) { return output.path.empty(); });
  return outputs;
}

void OutputTensors::Add(const char* flag, const std::string& path, MutableTensorView& view, DType dtype,
                        std::vector<int64_t> shape) {
  static char present;  // planning only asks whether an output is given, so any address will do
  const size_t file = files_.Add(flag, path);
  const Output& output = outputs_.emplace_back(view, dtype, std::move(shape), file);
  view = {&present, dtype, Dims(std::span(output.shape)), {}};
}

void OutputTensors::Add(const std::vector<OutputSpec>& outputs) {
  for (const OutputSpec& output : outputs) Add(output.flag, output.path, *output.view, output.dtype, output.shape);
}

void OutputTensors::AddIfNamed(const char* flag, const std::string& path, MutableTensorView& view, DType dtype,
                               std::vector<int64_t> shape) {
  if (!path.empty()) Add(flag, path, view, dtype, std::move(shape));
}

void OutputTensors::Allocate() {
  for (Output& output : outputs_) {
    output.tensor = NewTensor(output.dtype, output.shape);
    output.view.data = output.tensor.array.bytes();
    files_.Set(output.file, output.tensor.array);
  }
}

}  // namespace fa::tool
