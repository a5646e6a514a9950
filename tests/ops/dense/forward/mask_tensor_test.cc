// A mask tensor that drops the same pairs as a Mask must not change any bit of the forward or the backward, on every
// level. If the tensor is given without the Mask, only dq may differ, because the Mask decides the order in which key
// blocks add to dq.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/view.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kHeads = 2, kRows = 300, kKeys = 540, kColumns = 40;

struct MaskPair {
  const char* name;
  Mask rule;
};

void PrintTo(const MaskPair& mask, std::ostream* out) { *out << mask.name; }

/// Returns the mask under which row i keeps the keys [begin(i), end(i)).
template <typename Begin, typename End>
Mask RowsOf(const Begin& begin, const End& end) {
  std::vector<int64_t> begins, ends;
  for (int64_t i = 0; i < kRows; ++i) {
    begins.push_back(begin(i));
    ends.push_back(end(i));
  }
  return Mask::Rows(std::move(begins), std::move(ends));
}

std::vector<MaskPair> Masks() {
  return {{"causal", Mask::Causal()},
          {"window", Mask::Band(20, 3)},
          {"far_from_the_diagonal", Mask::Band(-200, 250)},
          {"padding", RowsOf([](int64_t) { return 0; }, [](int64_t i) { return i < 101 ? 333 : 0; })},
          {"left_padding", RowsOf([](int64_t) { return 131; }, [](int64_t) { return kKeys; })},
          {"documents", RowsOf([](int64_t i) { return i / 75 * 130; }, [](int64_t i) { return i / 75 * 130 + 101; })}};
}

/// Returns the interval of keys that row i keeps under a mask of Masks().
std::pair<int64_t, int64_t> KeysOf(const Mask& mask, int64_t i) {
  const int64_t diagonal = i + kKeys - kRows;
  if (mask.kind() == Mask::Kind::kRows)
    return {mask.row_begin()[static_cast<size_t>(i)], mask.row_end()[static_cast<size_t>(i)]};
  if (mask.kind() == Mask::Kind::kCausal) return {0, diagonal + 1};
  return {diagonal - mask.pre(), diagonal + mask.next() + 1};
}

std::vector<uint8_t> TensorOf(const Mask& mask) {
  std::vector<uint8_t> drop;
  for (int64_t i = 0; i < kRows; ++i) {
    const auto [begin, end] = KeysOf(mask, i);
    for (int64_t j = 0; j < kKeys; ++j) drop.push_back(j >= begin && j < end ? 0 : 1);
  }
  return drop;
}

/// The inputs and outputs of a forward and its backward. 16-bit elements are random bf16 numbers.
class Call {
 public:
  explicit Call(DType dtype) : dtype_(dtype) {
    std::mt19937 random(11);
    for (std::vector<std::byte>* tensor : {&q_, &d_out_}) Fill(kRows, random, tensor);
    for (std::vector<std::byte>* tensor : {&k_, &v_}) Fill(kKeys, random, tensor);
  }
  /// Returns the bytes of out, both statistics, dk, dv and, with `with_dq`, dq in one vector.
  std::vector<std::byte> Run(const Mask& rule, const std::vector<uint8_t>* drop, Context* context,
                             bool with_dq = true) {
    const Dims stats{1, kHeads, kRows};
    std::vector<float> max(kHeads * kRows), sum(max.size());
    std::vector<std::byte> out(q_.size()), dq(q_.size()), dk(k_.size()), dv(v_.size());
    const auto rows = [&](auto& tensor, int64_t count) {
      return View(tensor.data(), dtype_, Dims{1, kHeads, count, kColumns});
    };
    TensorView mask;
    if (drop != nullptr) mask = View(*drop, Dims{kRows, kKeys});
    AttentionOptions options;
    options.mask = rule;
    AttentionArgs args;
    args.q = rows(q_, kRows);
    args.k = rows(k_, kKeys);
    args.v = rows(v_, kKeys);
    args.dense_mask = mask;
    args.out = rows(out, kRows);
    args.softmax_max = View(max, stats);
    args.softmax_sum = View(sum, stats);
    EXPECT_TRUE(FlashAttention(args, options, context).ok());
    AttentionGradArgs grads;
    grads.q = args.q;
    grads.k = args.k;
    grads.v = args.v;
    grads.dense_mask = mask;
    grads.out = args.out;
    grads.d_out = rows(d_out_, kRows);
    grads.softmax_max = args.softmax_max;
    grads.softmax_sum = args.softmax_sum;
    grads.dq = rows(dq, kRows);
    grads.dk = rows(dk, kKeys);
    grads.dv = rows(dv, kKeys);
    EXPECT_TRUE(FlashAttentionGrad(grads, options, context).ok());
    std::vector<std::byte> all = out;
    const auto add = [&all](const auto& tensor) {
      const auto bytes = std::as_bytes(std::span(tensor));
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    add(max), add(sum), add(dk), add(dv);
    if (with_dq) add(dq);
    return all;
  }

 private:
  void Fill(int64_t rows, std::mt19937& random, std::vector<std::byte>* tensor) const {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kHeads * rows * kColumns; ++i) {
      const float x = normal(random);
      // The upper half of an f32 is a bf16 number.
      const auto* bytes = reinterpret_cast<const std::byte*>(&x);
      tensor->insert(tensor->end(), bytes + (dtype_ == DType::kBF16 ? 2 : 0), bytes + sizeof x);
    }
  }

  DType dtype_;
  std::vector<std::byte> q_, k_, v_, d_out_;
};

class MaskTensor : public ::testing::TestWithParam<std::tuple<MaskPair, DType>> {};

TEST_P(MaskTensor, GivesTheBitsOfItsRule) {
  const auto& [mask, dtype] = GetParam();
  Call call(dtype);
  const std::vector<uint8_t> drop = TensorOf(mask.rule), drop_all(drop.size(), 1);
  for (const Isa isa : IsaLevels()) {
    for (const bool with_dq : {false, true}) {
      // This call leaves the bits of its mask in the context's workspace. If a later call read its mask bits before
      // writing them, it would read the bits of this call.
      call.Run(Mask::None(), &drop_all, ContextOf(isa));
      const std::vector<std::byte> want = call.Run(mask.rule, nullptr, ContextOf(isa), with_dq);
      const Mask rule = with_dq ? mask.rule : Mask::None();
      EXPECT_TRUE(call.Run(rule, &drop, ContextOf(isa), with_dq) == want)
          << Name(isa) << (with_dq ? ", with the rule" : "");
    }
  }
}

TEST_P(MaskTensor, GivesOtherBitsWithoutOnePair) {
  const auto& [mask, dtype] = GetParam();
  Call call(dtype);
  std::vector<uint8_t> drop = TensorOf(mask.rule);
  // The tensor drops one key that row 60 keeps under every mask of Masks().
  const auto [begin, end] = KeysOf(mask.rule, 60);
  drop[static_cast<size_t>(60 * kKeys + std::max<int64_t>(begin, 0) + (end - begin) / 2)] = 1;
  EXPECT_FALSE(call.Run(mask.rule, &drop, ContextOf(Isa::kPortable)) ==
               call.Run(mask.rule, nullptr, ContextOf(Isa::kPortable)));
}

INSTANTIATE_TEST_SUITE_P(All, MaskTensor,
                         ::testing::Combine(::testing::ValuesIn(Masks()), ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + Name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
