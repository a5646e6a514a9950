#ifndef FA_OPTIONS_H_
#define FA_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "fa/mask.h"
#include "fa/tensor.h"

namespace fa {

/// How a position bias enters the score, before masking. Values are the device's pseType.
enum class PseType : uint8_t {
  kScaleThenAdd = 0,  ///< scale * QK + pse
  kAddThenScale = 1,  ///< scale * (QK + pse)
  kSlopes = 2,        ///< scale * QK - slope[n] * |(j + kv_start) - (i + q_start)|
  kSlopesSqrt = 3,    ///< scale * QK - slope[n] * sqrt(|(j + kv_start) - (i + q_start)|)
};

/// Counter-based dropout: the bit of flat element f of [B,N,Sq,Sk] (TND: sequence after sequence, each
/// [N,Sq_b,Sk_b]) is kept when word f mod 4 of Philox4x32-10(counter {lo(f/4), hi(f/4), lo(offset), hi(offset)},
/// key {lo(seed), hi(seed)}) < floor(keep_prob * 2^32). It is not the NPU's generator.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

/// Everything of an attention call that is not a tensor.
struct AttentionOptions {
  Layout layout = Layout::kBNSD;
  int64_t heads = 0;  ///< query heads; needed for BSH and SBH, checked against the tensors elsewhere if > 0
  std::optional<float> scale = {};  ///< default 1/sqrt(D + Drope); any finite value
  Mask mask = {};
  PseType pse_type = PseType::kAddThenScale;
  int64_t q_start = 0;                      ///< added to i in the distance of pse types 2 and 3
  int64_t kv_start = 0;                     ///< added to j likewise
  float softcap = 0;                        ///< c > 0: scale*QK becomes c*tanh(scale*QK/c) before pse; 0: off
  float keep_prob = 1;                      ///< dropout: kept probabilities are multiplied by 1/keep_prob; in (0, 1]
  std::optional<PhiloxState> dropout = {};  ///< dropout by seed instead of AttentionArgs::drop_mask
};

}  // namespace fa

#endif  // FA_OPTIONS_H_
