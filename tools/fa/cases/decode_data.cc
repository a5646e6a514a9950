#include "cases/decode_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cases/case_tensors.h"
#include "check/element.h"

namespace fa::tool {
namespace {

// An int8 value stands for its multiple of this scale, which bf16 holds exactly.
constexpr float kInt8Scale = 1.0f / 32;

int8_t ToInt8(double value) {
  return static_cast<int8_t>(std::clamp(std::lround(value / static_cast<double>(kInt8Scale)), -127L, 127L));
}

}  // namespace

DecodeData::DecodeData(const DecodeCase& decode) : case_(decode), dense_(decode.forward) {
  if (case_.paged()) table_ = RandomPages(case_.args.block_table);
  if (case_.int8) {
    scale_ = NewLike(case_.args.antiquant_scale);
    for (int64_t side = 0; side < 2; ++side) check::StoreElement(scale_.array.bytes(), DType::kF32, side, kInt8Scale);
  }
  if (!case_.paged() && !case_.int8) return;
  k_ = Rearranged(dense_.key(), case_.args.k[0], case_.forward.d);
  v_ = Rearranged(dense_.value(), case_.args.v[0], case_.forward.dv);
}

/// Returns the rows of `dense` in the form that the call takes: pages, int8 or both. If it is int8, the elements of
/// `dense` are replaced by the numbers that the int8 values stand for.
Tensor DecodeData::Rearranged(Tensor& dense, const TensorView& like, int64_t d) const {
  const ForwardCase& forward = case_.forward;
  const TensorSizes sizes{.batch = forward.batch, .seq = forward.sk, .heads = forward.heads_kv, .d = d};
  const TensorStrides from = StridesOf(forward.options.layout, sizes);
  const TensorStrides to = case_.paged() ? StridesOf(case_.PageLayout(), case_.PageSizes(d)) : from;
  const auto* table = reinterpret_cast<const int32_t*>(table_.array.bytes());
  const auto element = static_cast<int64_t>(fa::SizeOf(dense.dtype));
  Tensor result = NewLike(like);
  std::memset(result.array.bytes(), 0, result.array.size_bytes());
  for (int64_t b = 0; b < forward.batch; ++b) {
    for (int64_t j = 0; j < forward.sk; ++j) {
      const int64_t page = case_.paged() ? table[b * case_.pages_of_one() + j / case_.block_size] : b;
      const int64_t row = case_.paged() ? j % case_.block_size : j;
      for (int64_t n = 0; n < forward.heads_kv; ++n) {
        const int64_t source = b * from.batch + n * from.head + j * from.seq;
        const int64_t target = page * to.batch + n * to.head + row * to.seq;
        if (!case_.int8) {
          std::memcpy(result.array.bytes() + target * element, dense.array.bytes() + source * element,
                      static_cast<size_t>(d * element));
          continue;
        }
        for (int64_t c = 0; c < d; ++c) {
          const int8_t value = ToInt8(check::LoadElement(dense.array.bytes(), dense.dtype, source + c));
          result.array.bytes()[target + c] = static_cast<std::byte>(value);
          check::StoreElement(dense.array.bytes(), dense.dtype, source + c, static_cast<float>(value) * kInt8Scale);
        }
      }
    }
  }
  return result;
}

DecodeAttentionArgs DecodeData::Args() {
  const AttentionArgs dense = dense_.Args();
  DecodeAttentionArgs args = case_.args;
  args.q = dense.q;
  args.out = dense.out;
  const bool own = case_.paged() || case_.int8;
  k_view_ = own ? k_.View() : dense.k;
  v_view_ = own ? v_.View() : dense.v;
  args.k = {&k_view_, 1};
  args.v = {&v_view_, 1};
  if (case_.paged()) args.block_table = table_.View();
  if (case_.int8) args.antiquant_scale = scale_.View();
  return args;
}

double DecodeData::key_value_bytes() const {
  const double bytes = dense_.key_value_bytes();
  return case_.int8 ? bytes / static_cast<double>(fa::SizeOf(case_.forward.dtype)) : bytes;
}

std::vector<std::span<const std::byte>> DecodeData::key_value_memory() {
  const bool own = case_.paged() || case_.int8;
  std::vector<std::span<const std::byte>> memory;
  for (Tensor* tensor : {own ? &k_ : &dense_.key(), own ? &v_ : &dense_.value()}) {
    memory.emplace_back(tensor->array.bytes(), tensor->array.size_bytes());
  }
  return memory;
}

}  // namespace fa::tool
