#ifndef FA_OPTIONS_H_
#define FA_OPTIONS_H_

/// @file
/// The options of a dense attention call, which are everything but its tensors.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 128, 8, 64});
/// args.out = fa::View(out.data(), {1, 128, 8, 64});
/// fa::AttentionOptions options;
/// options.layout = fa::Layout::kBSND;
/// options.mask = fa::Mask::Causal();
/// options.keep_prob = 0.9F;
/// options.dropout = fa::PhiloxState{.seed = 42};
/// return fa::FlashAttention(args, options);
/// @endcode

#include <cstdint>
#include <optional>
#include <type_traits>

#include "fa/mask.h"
#include "fa/tensor.h"

namespace fa {

/// How a position bias changes the score, before masking. The values are the device's pseType.
enum class PseType : uint8_t {
  kScaleThenAdd = 0,  ///< scale * QK + pse
  kAddThenScale = 1,  ///< scale * (QK + pse)
  kSlopes = 2,        ///< scale * QK - slope[n] * |(j + kv_start) - (i + q_start)|
  kSlopesSqrt = 3,    ///< scale * QK - slope[n] * sqrt(|(j + kv_start) - (i + q_start)|)
};

/// The state of counter-based dropout. Flat element f of [B,N,Sq,Sk] (TND: sequence after sequence, each [N,Sq_b,Sk_b])
/// is kept if word f mod 4 of Philox4x32-10(counter {lo(f/4), hi(f/4), lo(offset), hi(offset)}, key {lo(seed),
/// hi(seed)}) < floor(keep_prob * 2^32). The NPU draws other numbers.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

/// The options of an attention call: everything but its tensors.
struct AttentionOptions {
  Layout layout = Layout::kBNSD;
  int64_t heads = 0;  ///< number of query heads, needed for BSH and SBH; with other layouts it is checked if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  Mask mask = {};
  PseType pse_type = PseType::kAddThenScale;
  int64_t q_start = 0;   ///< added to i in the distance of pse types 2 and 3
  int64_t kv_start = 0;  ///< added to j in the distance of pse types 2 and 3
  float softcap = 0;     ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse is added; 0: off
  /// Dropout: probability that a pair is kept, in (0, 1]; kept probabilities are multiplied by 1/keep_prob.
  float keep_prob = 1;
  std::optional<PhiloxState> dropout = {};  ///< seed for dropout instead of AttentionArgs::drop_mask
};

/// The options that are one number each, as X(type, name, help text of the command line). DecodeAttentionOptions,
/// PromptAttentionOptions and AttentionOptions have one list each, in the order of their members.
#define FA_DECODE_NUMBERS(X) X(float, softcap, "C > 0: scores become C tanh(score/C)")
#define FA_PROMPT_NUMBERS(X)                                         \
  X(int64_t, q_start, "Added to the row in the distance of slopes")  \
  X(int64_t, kv_start, "Added to the key in the distance of slopes") \
  FA_DECODE_NUMBERS(X)
#define FA_DENSE_NUMBERS(X) \
  FA_PROMPT_NUMBERS(X)      \
  X(float, keep_prob, "Kept probabilities are multiplied by 1/keep-prob")

/// Declares an option of the FA_*_NUMBERS lists as a member of another struct, with the default of AttentionOptions.
#define FA_NUMBER_MEMBER(type, name, text) type name = fa::AttentionOptions().name;

/// Calls visit(name, text, values...) for every option of the FA_*_NUMBERS lists that all structs in `options` have.
/// `values` are the option's values, one from each struct.
template <typename Visit, typename... Options>
constexpr void ForEachNumber(const Visit& visit, Options&&... options) {
#define FA_VISIT(type, name, text) \
  if constexpr ((requires { options.name; } && ...)) visit(#name, text, options.name...);
  FA_DENSE_NUMBERS(FA_VISIT)
#undef FA_VISIT
}

/// Copies every option of the FA_*_NUMBERS lists that both `from` and `to` have.
template <typename From, typename To>
constexpr void CopyNumbers(const From& from, To& to) {
  const auto copy = [](const char*, const char*, const auto& number, auto& into) {
    into = static_cast<std::remove_reference_t<decltype(into)>>(number);
  };
  ForEachNumber(copy, from, to);
}

}  // namespace fa

#endif  // FA_OPTIONS_H_
