#include "support/cases/forward_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <sstream>
#include <stdexcept>

namespace fa::test {
namespace {

int64_t Largest(const std::vector<int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

int64_t Sum(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

/// Writes the fields that differ from a default case as text.
class Fields {
 public:
  template <typename T>
  void Add(const char* name, const T& value, const T& usual) {
    if (value == usual) return;
    text_ << ' ' << name << '=';
    if constexpr (sizeof(T) == 1) {
      text_ << static_cast<int>(value);
    } else {
      text_ << value;
    }
  }
  void AddList(const char* name, const std::vector<int64_t>& values) {
    text_ << ' ' << name << "={";
    for (size_t x = 0; x < values.size(); ++x) text_ << (x > 0 ? "," : "") << values[x];
    text_ << '}';
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

Mask MaskOf(const ForwardCase& c) {
  const reference::MaskRule& rule = c.mask;
  if (c.sparse_mode) {
    auto mask = Mask::FromSparseMode(rule.mode, rule.pre, rule.next, rule.prefix, c.dense_mask != MaskForm::kNone);
    if (!mask.ok()) throw std::invalid_argument(mask.status().message());
    return *mask;
  }
  switch (rule.mode) {
    case 0: return rule.band ? Mask::BandTopLeft(rule.pre, rule.next) : Mask::None();
    case 1: return Mask::None();
    case 2: return Mask::CausalTopLeft();
    case 3: return Mask::Causal();
    case 4: return Mask::Band(rule.pre, rule.next);
    case 5:
    case 6: return Mask::Prefix(rule.prefix);
    case reference::MaskRule::kRows: return Mask::Rows(rule.row_begin, rule.row_end);
    default: throw std::invalid_argument("modes 7 and 8 have no constructor");
  }
}

}  // namespace

int64_t ForwardCase::max_sq() const { return Largest(lengths.sq); }
int64_t ForwardCase::max_sk() const { return Largest(lengths.sk); }

float ForwardCase::scale_value() const {
  return scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(d + d_rope))));
}

int64_t ForwardCase::tensor_rows_q() const { return packed() ? Sum(lengths.sq) + tail_q : max_sq(); }
int64_t ForwardCase::tensor_rows_k() const { return packed() ? Sum(lengths.sk) + tail_kv : max_sk(); }

reference::Lengths EqualLengths(int64_t batch, int64_t sq, int64_t sk) {
  return {std::vector<int64_t>(static_cast<size_t>(batch), sq), std::vector<int64_t>(static_cast<size_t>(batch), sk)};
}

std::string ToString(const ForwardCase& c) {
  const ForwardCase usual;
  Fields f;
  f.Add("seed", c.seed, ~uint64_t{0});
  f.Add("dtype", std::string(Name(c.dtype)), std::string());
  f.Add("layout", std::string(Name(c.layout)), std::string());
  f.Add("heads", c.heads, int64_t{-1});
  f.Add("heads_kv", c.heads_kv, c.heads);
  f.Add("d", c.d, int64_t{-1});
  f.Add("d_rope", c.d_rope, usual.d_rope);
  f.Add("dv", c.dv, c.d);
  f.AddList("sq", c.lengths.sq);
  f.AddList("sk", c.lengths.sk);
  f.Add("first_sequence", c.first_sequence, usual.first_sequence);
  f.Add("tail_q", c.tail_q, usual.tail_q);
  f.Add("tail_kv", c.tail_kv, usual.tail_kv);
  f.Add("mask.mode", c.mask.mode, usual.mask.mode);
  f.Add("mask.band", c.mask.band, usual.mask.band);
  f.Add("mask.pre", c.mask.pre, usual.mask.pre);
  f.Add("mask.next", c.mask.next, usual.mask.next);
  if (!c.mask.prefix.empty()) f.AddList("mask.prefix", c.mask.prefix);
  if (!c.mask.row_begin.empty()) f.AddList("mask.row_begin", c.mask.row_begin);
  if (!c.mask.row_end.empty()) f.AddList("mask.row_end", c.mask.row_end);
  f.Add("sparse_mode", c.sparse_mode, usual.sparse_mode);
  f.Add("dense_mask", c.dense_mask, usual.dense_mask);
  f.Add("dense_mask_share", c.dense_mask_share, usual.dense_mask_share);
  f.Add("dense_mask_dtype", std::string(Name(c.dense_mask_dtype)), std::string("u8"));
  f.Add("pse", c.pse, usual.pse);
  f.Add("pse_type", c.pse_type, usual.pse_type);
  f.Add("pse_broadcast_batch", c.pse_broadcast_batch, usual.pse_broadcast_batch);
  f.Add("pse_f32", c.pse_f32, usual.pse_f32);
  f.Add("pse_minus_inf_share", c.pse_minus_inf_share, usual.pse_minus_inf_share);
  ForEachNumber([&](const char* name, auto, auto number, auto other) { f.Add(name, number, other); }, c, usual);
  if (c.scale) f.Add("scale", *c.scale, NAN);
  f.Add("dropout", c.dropout, usual.dropout);
  f.Add("sink", c.sink, usual.sink);
  f.Add("sink_form", c.sink_form, usual.sink_form);
  f.Add("wants_max", c.wants_max, usual.wants_max);
  f.Add("wants_sum", c.wants_sum, usual.wants_sum);
  f.Add("wants_lse", c.wants_lse, usual.wants_lse);
  f.Add("packing", c.packing, usual.packing);
  f.Add("padding.inner", c.padding.inner, int64_t{0});
  f.Add("padding.middle", c.padding.middle, int64_t{0});
  f.Add("padding.outer", c.padding.outer, int64_t{0});
  f.Add("place", c.placement.place, usual.placement.place);
  f.Add("misalignment", c.placement.misalignment, int64_t{0});
  return f.text();
}

std::ostream& operator<<(std::ostream& out, const ForwardCase& c) { return out << ToString(c); }

AttentionOptions OptionsOf(const ForwardCase& c) {
  AttentionOptions options;
  options.layout = c.layout;
  options.heads = c.heads;
  options.scale = c.scale;
  options.mask = MaskOf(c);
  if (c.pse_type != reference::PseType::kNone) options.pse_type = static_cast<PseType>(c.pse_type);
  CopyNumbers(c, options);
  if (c.dropout == DropoutForm::kSeed) options.dropout = PhiloxState{.seed = c.seed * 7919, .offset = c.seed / 3};
  return options;
}

}  // namespace fa::test
