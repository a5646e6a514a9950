#ifndef FA_TESTS_ACLNN_INFER_PROBLEM_H_
#define FA_TESTS_ACLNN_INFER_PROBLEM_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "aclnn/calls/infer_face.h"
#include "fa/half.h"
#include "fa/infer_attention.h"
#include "fa/mask.h"
#include "fa/view.h"

/// Small calls of fused inference. Tests run each call through C++ and through the C interface, and compare the
/// results.
namespace fa::test::infer {

inline constexpr int64_t kBatch = 2, kRows = 3, kKeys = 9, kHeads = 4, kHeadsKv = 2, kSize = 16, kPage = 4, kPages = 7;
inline bool Packed(Layout layout) { return std::string_view(Name(layout)).find('T') != std::string_view::npos; }

/// A call with f32 tensors, whose results are `out` and `lse`.
class Problem {
 public:
  explicit Problem(Layout layout, int64_t rows = kRows, int64_t columns = kSize) {
    const std::string name = Name(layout);
    const std::string left = name.substr(0, name.find('_')), right = name.substr(name.rfind('_') + 1);
    args.q = Floats(Shape(left, kHeads, rows, columns));
    keys = {Floats(Shape(left, kHeadsKv, kKeys, columns))};
    values = {Floats(Shape(left, kHeadsKv, kKeys, columns))};
    const Dims lse_shape = Packed(layout) ? Dims{kBatch * rows, kHeads, 1} : Dims{kBatch, kHeads, rows, 1};
    args.out = Result(Shape(right, kHeads, rows, columns), &out);
    args.lse = Result(lse_shape, &lse);
    lengths_q = Packed(layout) ? std::vector<int64_t>{rows - 1, 2 * rows - 1} : std::vector<int64_t>{rows, rows - 1};
    lengths_kv = Packed(layout) ? std::vector<int64_t>{kKeys - 4, kKeys + 3} : std::vector<int64_t>{kKeys - 4, kKeys};
    options = {.layout = layout,
               .heads = kHeads,
               .heads_kv = kHeadsKv,
               .scale = 0.3F,
               .lse_without_keys = std::numeric_limits<float>::infinity()};
  }

  /// Returns a dense tensor with numbers that differ from those of other tensors.
  TensorView Floats(const Dims& shape) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    std::vector<float>& memory = floats_.emplace_back(static_cast<size_t>(elements));
    for (float& value : memory) value = std::sin(0.7F * static_cast<float>(++count_));
    return {memory.data(), DType::kF32, shape, {}};
  }
  /// Returns a dense tensor with codes of one byte. With f8e4m3, none of the codes is NaN.
  TensorView Codes(const Dims& shape, DType dtype) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    std::vector<uint8_t>& memory = codes_.emplace_back(static_cast<size_t>(elements));
    for (uint8_t& code : memory) code = static_cast<uint8_t>(37 * ++count_ % 120);
    return {memory.data(), dtype, shape, {}};
  }
  /// Returns a dense tensor of bf16.
  TensorView Halves(const Dims& shape) {
    TensorView view = Floats(shape);
    auto* halves = reinterpret_cast<uint16_t*>(floats_.back().data());
    for (size_t i = 0; i < floats_.back().size(); ++i) halves[i] = Bf16FromF32(floats_.back()[i]);
    view.dtype = DType::kBF16;
    return view;
  }
  TensorView Integer(int64_t value) { return {&integers_.emplace_back(value), DType::kI64, {1}, {}}; }
  /// Returns the compressed triangular mask that sparse modes 2, 3 and 4 take.
  static TensorView Triangle() { return {CompressedMask(3).data(), DType::kU8, {2048, 2048}, {}}; }

  /// Replaces the keys by pages of this shape.
  void UsePages(const Dims& shape) {
    keys = {Floats(shape)};
    values = {Floats(shape)};
    args.block_table = {table_.data(), DType::kI32, {kBatch, 3}, {}};
    options.block_size = kPage;
    lengths_kv = {kKeys - 4, kKeys};
  }

  [[nodiscard]] const InferAttentionArgs& Args() {
    args.k = keys;
    args.v = values;
    args.k_rope = {&key_rope, key_rope.data == nullptr ? size_t{0} : size_t{1}};
    const bool packed = Packed(options.layout);
    (packed ? args.cu_q : args.lengths_q) = lengths_q;
    (packed && args.block_table.data == nullptr ? args.cu_kv : args.lengths_kv) = lengths_kv;
    args.length_prefix = length_prefix;
    return args;
  }
  void Forget() {
    std::fill(out.begin(), out.end(), std::numeric_limits<float>::quiet_NaN());
    std::fill(lse.begin(), lse.end(), std::numeric_limits<float>::quiet_NaN());
  }

  InferAttentionArgs args;
  InferAttentionOptions options;
  std::vector<TensorView> keys, values;
  TensorView key_rope;
  std::vector<int64_t> lengths_q, lengths_kv, length_prefix;
  std::vector<float> out, lse;

 private:
  static Dims Shape(std::string_view axes, int64_t heads, int64_t rows, int64_t columns) {
    Dims shape;
    for (const char axis : axes) {
      shape.push_back(axis == 'B'   ? kBatch
                      : axis == 'S' ? rows
                      : axis == 'T' ? kBatch * rows
                      : axis == 'N' ? heads
                      : axis == 'D' ? columns
                                    : heads * columns);
    }
    return shape;
  }
  static MutableTensorView Result(const Dims& shape, std::vector<float>* memory) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    memory->resize(static_cast<size_t>(elements));
    return {memory->data(), DType::kF32, shape, {}};
  }

  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<uint8_t>> codes_;
  std::deque<int64_t> integers_;
  std::vector<int32_t> table_ = {5, 0, -1, 2, 6, 1};
  int count_ = 0;
};

using Change = std::function<void(InferFace*)>;

/// Expects the bits of fa::InferAttention from this version of the interface. `change` changes its parameters.
inline void ExpectBitsOfCpp(Problem& problem, InferVersion version, const Change& change = {}) {
  problem.Forget();
  const Status status = InferAttention(problem.Args(), problem.options);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<float> out = problem.out, lse = problem.lse;
  problem.Forget();
  InferFace face(problem.Args(), problem.options);
  if (change) change(&face);
  ASSERT_EQ(RunFace(version, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(problem.out, out);
  if (face.p.lse_flag) {
    EXPECT_EQ(problem.lse, lse);
  }
}

/// Runs a call whose keys have separate scales. `view` has the scales in the library's shape, and `shape` is the
/// device's shape of the same scales.
inline void ExpectBitsWithScales(Problem& problem, const TensorView& view, const Dims& shape, int64_t mode) {
  problem.args.k_scale = problem.args.v_scale = view;
  TensorView scale = view;
  scale.shape = shape;
  ExpectBitsOfCpp(problem, InferVersion::kV4, [&](InferFace* face) {
    face->p.key_scale = face->p.value_scale = face->handles().Tensor(scale);
    face->p.key_mode = face->p.value_mode = mode;
  });
}

}  // namespace fa::test::infer

#endif  // FA_TESTS_ACLNN_INFER_PROBLEM_H_
