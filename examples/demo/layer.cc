#include "layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "npy/npy_file.h"

namespace fa::demo {
npy::Array Load(const std::filesystem::path& path, npy::ElementType type) {
  npy::Array array = npy::Load(path.string());
  if (array.type() != type || array.shape().size() != 4) {
    throw npy::FormatError(fmt::format("{}: {} {}, want {} with 4 dimensions", path.string(), npy::Name(array.type()),
                                       npy::ShapeText(array.shape()), npy::Name(type)));
  }
  return array;
}

TensorView View(const npy::Array& array) {
  return fa::View(array.bytes(), DType::kF32, Dims(std::span(array.shape())));
}

MutableTensorView MutableView(npy::Array& array) {
  return fa::View(array.bytes(), DType::kF32, Dims(std::span(std::as_const(array).shape())));
}

check::HeadRows HeadOf(const npy::Array& array, int64_t head) {
  const std::vector<int64_t>& shape = array.shape();
  return {.data = array.bytes(),
          .dtype = DType::kF32,
          .offset = head * shape[2] * shape[3],
          .row_stride = shape[3],
          .columns = shape[3]};
}

check::ForwardRow ReferenceRow(const Layer& layer, int64_t head, int64_t token) {
  const std::vector<int64_t>& shape = layer.q.shape();
  return check::ComputeForwardRow({.q = HeadOf(layer.q, head),
                                   .k = HeadOf(layer.k, head),
                                   .v = HeadOf(layer.v, head),
                                   .row = token,
                                   .sk = shape[2],
                                   .scale = 1 / std::sqrt(static_cast<double>(shape[3])),
                                   .keeps = [](int64_t) { return true; }});
}

AttentionArgs Layer::Args() {
  AttentionArgs args;
  args.q = View(q);
  args.k = View(k);
  args.v = View(v);
  args.out = MutableView(out);
  args.softmax_max = MutableView(softmax_max);
  args.softmax_sum = MutableView(softmax_sum);
  return args;
}

std::optional<Layer> LoadLayer(const std::filesystem::path& folder, int index) {
  const auto path = [&](const char* name) { return folder / fmt::format("layer{}_{}.npy", index, name); };
  if (!std::filesystem::exists(path("q"))) return std::nullopt;
  Layer layer;
  layer.q = Load(path("q"), npy::ElementType::kF32);
  layer.k = Load(path("k"), npy::ElementType::kF32);
  layer.v = Load(path("v"), npy::ElementType::kF32);
  layer.want = Load(path("out"), npy::ElementType::kF64);
  if (layer.k.shape() != layer.q.shape() || layer.v.shape() != layer.q.shape() ||
      layer.want.shape() != layer.q.shape()) {
    throw npy::FormatError(fmt::format("{}: q, k, v and out differ in shape", path("q").string()));
  }
  const std::vector<int64_t>& shape = layer.q.shape();
  layer.out = npy::Array(npy::ElementType::kF32, shape);
  layer.softmax_max = npy::Array(npy::ElementType::kF32, {shape[0], shape[1], shape[2]});
  layer.softmax_sum = npy::Array(npy::ElementType::kF32, {shape[0], shape[1], shape[2]});
  return layer;
}

Error CompareWithFloat64(const Layer& layer) {
  const std::vector<int64_t>& shape = layer.q.shape();
  const int64_t heads = shape[0] * shape[1], tokens = shape[2], d = shape[3];
  Error error;
  double squares = 0;
  for (int64_t row = 0; row < heads * tokens; ++row) {
    const check::ForwardRow reference = ReferenceRow(layer, row / tokens, row % tokens);
    for (int64_t column = 0; column < d; ++column) {
      const auto at = static_cast<size_t>(row * d + column);
      const double difference = std::fabs(layer.out.as<float>()[at] - layer.want.as<double>()[at]);
      const double of_bound = difference / reference.bound[static_cast<size_t>(column)];
      error.max = WorseOf(error.max, difference);
      error.of_bound = WorseOf(error.of_bound, of_bound);
      squares += difference * difference;
    }
  }
  error.rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(layer.out.size(), 1)));
  return error;
}

}  // namespace fa::demo
