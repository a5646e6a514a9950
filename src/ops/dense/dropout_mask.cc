#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/context/context_impl.h"
#include "core/integer.h"
#include "core/random.h"
#include "core/run/guarded_call.h"
#include "fa/flash_attention.h"
#include "ops/bind/argument_error.h"
#include "ops/plan/parallel_rows.h"

namespace fa {
namespace {

// The number of bits per block. FillKeepBits writes whole words, but the mask may be unaligned and may end inside a
// word. So the bits are drawn block by block into a buffer that stays in L1, and copied from there.
constexpr int64_t kBlockBits = 1 << 15;
// The number of blocks per task. Drawing them takes about 100 us, which is enough work for a task.
constexpr int64_t kTaskBlocks = 32;

Status Generate(PhiloxState state, float keep_prob, int64_t bits, std::span<uint8_t> mask, Context* context) {
  if (!(keep_prob > 0 && keep_prob <= 1)) {
    return Status::InvalidArgument(ops::Arg("keep_prob").Is(ops::Text(keep_prob)) + ", want more than 0 and at most 1");
  }
  if (bits < 0) return Status::InvalidArgument(ops::Arg("bits").Is(std::to_string(bits)) + ", want >= 0");
  const int64_t bytes = core::CeilDiv(bits, 8);
  if (mask.size() < static_cast<size_t>(bytes)) {
    return Status::InvalidArgument(ops::Arg("mask").Has(std::to_string(mask.size())) +
                                   " bytes, want >= " + std::to_string(bytes) + " (" + ops::Arg("bits") + " / 8)");
  }
  if (bits == 0) return Status::Ok();
  Context& used = context != nullptr ? *context : Context::Default();
  const Isa isa = used.isa();
  const uint64_t threshold = core::KeepThreshold(keep_prob);
  auto fill_blocks = [&](int64_t begin, int64_t end) {
    std::array<uint32_t, kBlockBits / 32> words;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlockBits;
      const int64_t count = std::min(kBlockBits, bits - first);
      core::FillKeepBits(state, threshold, static_cast<uint64_t>(first), count, words, isa);
      std::memcpy(mask.data() + first / 8, words.data(), static_cast<size_t>(core::CeilDiv(count, 8)));
    }
  };
  return ops::ParallelRows(&used, core::CeilDiv(bits, kBlockBits), kTaskBlocks, ops::RowsFunction(fill_blocks));
}

}  // namespace

Status GenerateDropoutMask(PhiloxState state, float keep_prob, int64_t bits, std::span<uint8_t> mask,
                           Context* context) {
  return core::GuardedCall("dropout mask", [&] { return Generate(state, keep_prob, bits, mask, context); });
}

}  // namespace fa
