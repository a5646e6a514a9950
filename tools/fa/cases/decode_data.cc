#include "cases/decode_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cases/case_tensors.h"
#include "check/element.h"

namespace fa::tool {
namespace {

/// Returns the number that a code of a compressed type stands for. A code of 4 bits is the lower half of `code`.
float NumberOf(DType type, uint8_t code) {
  if (type == DType::kI8) return static_cast<int8_t>(code);
  if (type == DType::kI4x8) return static_cast<float>((code & 15) ^ 8) - 8;
  const int fraction_bits = type == DType::kF8E4M3 ? 3 : 2, bias = type == DType::kF8E4M3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
  const int significand = exponent == 0 ? fraction : (1 << fraction_bits) + fraction;
  const float number = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - fraction_bits);
  return code >= 128 ? -number : number;
}

}  // namespace

DecodeData::DecodeData(const DecodeCase& decode) : case_(decode), dense_(decode.forward) {
  if (case_.paged()) table_ = RandomPages(case_.args.block_table);
  if (case_.compressed) {
    MakeCodes();
    scale_ = NewLike(case_.args.antiquant_scale);
    for (int64_t side = 0; side < 2; ++side) check::StoreElement(scale_.array.bytes(), DType::kF32, side, unit_);
  }
  if (!case_.paged() && !case_.compressed) return;
  k_ = Rearranged(dense_.key(), case_.args.k[0], case_.forward.d);
  v_ = Rearranged(dense_.value(), case_.args.v[0], case_.forward.dv);
}

/// Fills codes_ with the codes of the compressed type and the scaled numbers that the codes stand for. bf16 holds these
/// numbers exactly. NaN and magnitudes above 16 are left out.
void DecodeData::MakeCodes() {
  const DType type = *case_.compressed;
  unit_ = type == DType::kI8 ? 1.0f / 32 : type == DType::kI4x8 ? 0.5f : 1.0f;
  const int count = type == DType::kI4x8 ? 16 : 256;
  for (int code = 0; code < count; ++code) {
    const float number = NumberOf(type, static_cast<uint8_t>(code)) * unit_;
    if (std::abs(number) <= 16) codes_.emplace_back(number, static_cast<uint8_t>(code));
  }
  std::sort(codes_.begin(), codes_.end());
}

float DecodeData::Compress(float number, std::byte* row, int64_t column) const {
  auto nearest = std::lower_bound(codes_.begin(), codes_.end(), std::pair(number, uint8_t{0}));
  if (nearest == codes_.end()) --nearest;
  if (nearest != codes_.begin() && number - (nearest - 1)->first < nearest->first - number) --nearest;
  if (case_.compressed == DType::kI4x8) {
    std::byte& both = row[column / 2];
    const int shift = static_cast<int>(column % 2) * 4;
    both = (both & static_cast<std::byte>(0xf0 >> shift)) | static_cast<std::byte>(nearest->second << shift);
  } else {
    row[column] = static_cast<std::byte>(nearest->second);
  }
  return nearest->first;
}

/// Returns the rows of `dense` in the form that the call takes. If keys are compressed, replaces the elements of
/// `dense` by the numbers that the codes stand for.
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
        if (!case_.compressed) {
          std::memcpy(result.array.bytes() + target * element, dense.array.bytes() + source * element,
                      static_cast<size_t>(d * element));
          continue;
        }
        std::byte* row_bytes = result.array.bytes() + (case_.compressed == DType::kI4x8 ? target / 2 : target);
        for (int64_t c = 0; c < d; ++c) {
          const double value = check::LoadElement(dense.array.bytes(), dense.dtype, source + c);
          check::StoreElement(dense.array.bytes(), dense.dtype, source + c,
                              Compress(static_cast<float>(value), row_bytes, c));
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
  const bool own = case_.paged() || case_.compressed.has_value();
  k_view_ = own ? k_.View() : dense.k;
  v_view_ = own ? v_.View() : dense.v;
  args.k = {&k_view_, 1};
  args.v = {&v_view_, 1};
  if (case_.paged()) args.block_table = table_.View();
  if (case_.compressed) args.antiquant_scale = scale_.View();
  return args;
}

double DecodeData::key_value_bytes() const {
  const double bytes = dense_.key_value_bytes();
  if (!case_.compressed) return bytes;
  const double columns = bytes / static_cast<double>(fa::SizeOf(case_.forward.dtype));
  return case_.compressed == DType::kI4x8 ? columns / 2 : columns;
}

std::vector<std::span<const std::byte>> DecodeData::key_value_memory() {
  const bool own = case_.paged() || case_.compressed.has_value();
  std::vector<std::span<const std::byte>> memory;
  for (Tensor* tensor : {own ? &k_ : &dense_.key(), own ? &v_ : &dense_.value()}) {
    memory.emplace_back(tensor->array.bytes(), tensor->array.size_bytes());
  }
  return memory;
}

}  // namespace fa::tool
