#include "support/cases/random_forward_case.h"

#include <algorithm>
#include <initializer_list>

#include "support/cases/random_values.h"

namespace fa::test {
namespace {

/// The most multiply-adds of one case. The reference needs some 20 ms for them.
constexpr int64_t kLargestWork = 3'000'000;

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}

  /// Returns a number that is uniform in [low, high].
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Next() % values.size()];
  }
  /// Returns true with a probability of 1 / `times`.
  bool Once(int64_t times) { return Pick(1, times) == 1; }

 private:
  uint64_t Next() { return RandomBits(seed_, Tag::kChoice, {-1, next_++}); }

  uint64_t seed_;
  int64_t next_ = 0;
};

int64_t HeadSize(Dice* dice) {
  if (dice->Once(3)) return dice->Pick(1, 140);
  return dice->OneOf<int64_t>({1, 2, 3, 7, 8, 16, 40, 63, 64, 80, 96, 112, 128, 130, 192, 256, 512, 1024});
}

int64_t Length(Dice* dice) {
  switch (dice->Pick(0, 5)) {
    case 0: return dice->Pick(0, 3);
    case 1: return dice->Pick(120, 135);
    case 2: return dice->Pick(250, 262);
    case 3: return dice->OneOf<int64_t>({511, 512, 513, 514, 1000, 1030});
    default: return dice->Pick(1, 70);
  }
}

int64_t Work(const ForwardCase& c) {
  int64_t pairs = 0;
  for (int64_t b = 0; b < c.batch(); ++b) pairs += c.lengths.sq[b] * c.lengths.sk[b];
  return pairs * c.heads * (c.d + c.d_rope + c.dv);
}

void PickSizes(Dice* dice, ForwardCase* c) {
  c->dtype = dice->OneOf({DType::kF32, DType::kF16, DType::kBF16});
  c->layout = dice->OneOf(
      {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND, Layout::kTND, Layout::kTND});
  c->heads_kv = dice->Pick(1, 3);
  c->heads = c->heads_kv * dice->OneOf<int64_t>({1, 1, 2, 3, 8});
  c->d = HeadSize(dice);
  c->dv = dice->Once(3) ? HeadSize(dice) : c->d;
  if (dice->Once(5)) c->d_rope = dice->OneOf<int64_t>({1, 5, 32, 64});
  const int64_t batch = dice->Pick(1, c->packed() ? 6 : 3);
  c->lengths = EqualLengths(batch, Length(dice), Length(dice));
  if (dice->Once(3)) c->lengths.sk = c->lengths.sq;
  if (c->packed()) {
    for (int64_t b = 0; b < batch; ++b) c->lengths.sq[b] = Length(dice);
    for (int64_t b = 0; b < batch; ++b) c->lengths.sk[b] = dice->Once(2) ? c->lengths.sq[b] : Length(dice);
    if (dice->Once(3)) c->tail_q = dice->Pick(0, 5);
    if (dice->Once(3)) c->tail_kv = dice->Pick(0, 5);
  }
  // The sequence is long enough for a compressed bias, and the heads are small, so that the reference is fast.
  if (dice->Once(12)) {
    c->lengths = EqualLengths(1, dice->Pick(1025, 1040), 0);
    c->lengths.sk = c->lengths.sq;
    c->heads = c->heads_kv = c->d = c->dv = 1;
    c->d_rope = 0;
  }
  while (Work(*c) > kLargestWork) {
    if (c->heads > 1) {
      c->heads = c->heads_kv = 1;
    } else if (c->batch() > 1) {
      c->lengths.sq.pop_back();
      c->lengths.sk.pop_back();
    } else {
      c->lengths.sq[0] = c->lengths.sq[0] * 2 / 3;
      c->d = (c->d + 1) / 2;
      c->dv = (c->dv + 1) / 2;
    }
  }
}

/// Picks mode 7 or 8. Only sparse modes make these masks, and they refuse some lengths.
void PickBandMode(Dice* dice, ForwardCase* c) {
  reference::MaskRule& mask = c->mask;
  mask.mode = dice->OneOf({7, 8});
  c->sparse_mode = true;
  mask.pre = INT32_MAX;
  auto& [sq, sk] = c->lengths;
  if (mask.mode == 7) {
    for (int64_t b = 0; b < c->batch(); ++b) sk[b] = std::max(sq[b], sk[b]);
    int64_t last = c->batch() - 1;
    while (last > 0 && sq[last] == 0) --last;
    mask.next = dice->Pick(sq[last] - sk[last], 0);
  } else {
    int64_t first = 0;
    while (first + 1 < c->batch() && sq[first] == 0) ++first;
    mask.next = sq[first] - sk[first] + dice->Pick(0, 40);
  }
}

/// Picks a mask that lists the keys of each row. Both bounds grow from row to row. Rows whose end is at or below their
/// begin keep no key.
void PickRows(Dice* dice, ForwardCase* c) {
  reference::MaskRule& mask = c->mask;
  mask.mode = reference::MaskRule::kRows;
  const bool shared = !c->packed() && dice->Once(2);
  const int64_t step = dice->OneOf<int64_t>({1, 3, 40});
  for (int64_t b = 0; b < (shared ? 1 : c->batch()); ++b) {
    int64_t begin = dice->Pick(-2, 2 * step), end = begin;
    for (int64_t i = 0; i < c->lengths.sq[b]; ++i) {
      begin += dice->Once(2) ? 0 : dice->Pick(0, step);
      end = std::max(end, begin) + dice->Pick(0, step);
      const bool nothing = dice->Once(9);
      if (nothing) begin = end;
      mask.row_begin.push_back(nothing ? dice->Pick(0, 9) : begin);
      mask.row_end.push_back(nothing ? mask.row_begin.back() - dice->Pick(0, 3) : end);
    }
  }
  for (int64_t i = 0; i < c->tail_q; ++i) {
    mask.row_begin.push_back(-1);
    mask.row_end.push_back(-1);
  }
}

void PickMask(Dice* dice, ForwardCase* c) {
  reference::MaskRule& mask = c->mask;
  if (dice->Once(4)) {
    c->dense_mask = dice->OneOf({MaskForm::kPlane, MaskForm::kPlane4d, MaskForm::kPerBatch, MaskForm::kPerHead});
    c->dense_mask_share = dice->OneOf({0.02, 0.3, 0.97});
    c->dense_mask_dtype = dice->OneOf({DType::kU8, DType::kBool});
  }
  if (c->packed() && c->dense_mask == MaskForm::kNone && dice->Once(5)) return PickBandMode(dice, c);
  mask.mode = dice->OneOf({0, 1, 2, 3, 3, 4, 5});
  const int64_t reach = c->max_sq() + c->max_sk();
  if (dice->Once(7)) return PickRows(dice, c);
  if (mask.mode == 0) mask.band = dice->Once(2);
  if (mask.band || mask.mode == 4) {
    mask.pre = dice->Once(6) ? Mask::kUnlimited : dice->Pick(-reach / 4, reach);
    mask.next = dice->Once(6) ? Mask::kUnlimited : dice->Pick(-reach / 4, reach / 2);
  }
  if (mask.mode == 5) {
    for (int64_t b = 0; b < c->batch(); ++b) mask.prefix.push_back(dice->Pick(-3, c->max_sk() + 3));
  }
}

void PickBias(Dice* dice, ForwardCase* c) {
  if (!dice->Once(2)) return;
  c->pse_type = dice->OneOf({reference::PseType::kScaleThenAdd, reference::PseType::kAddThenScale,
                             reference::PseType::kSlopes, reference::PseType::kSlopesSqrt});
  if (c->mask.mode == 7) c->pse_type = reference::PseType::kScaleThenAdd;  // mode 7 refuses slopes
  if (c->pse_type == reference::PseType::kSlopes || c->pse_type == reference::PseType::kSlopesSqrt) {
    c->pse = PseForm::kSlopes;
    c->pse_broadcast_batch = dice->Once(2);
    if (dice->Once(2)) c->q_start = dice->Pick(-50, 50);
    if (dice->Once(2)) c->kv_start = dice->Pick(-50, 50);
    return;
  }
  c->pse = dice->OneOf({PseForm::kFull, PseForm::kRow});
  c->pse_broadcast_batch = !c->packed() && dice->Once(2);
  c->pse_f32 = dice->Once(2);
  if (dice->Once(4)) c->pse_minus_inf_share = 0.3;
  const bool causal = c->mask.mode == 2 || c->mask.mode == 3;
  if (causal && c->lengths.sq == c->lengths.sk && c->max_sq() > 1024) {
    c->pse = PseForm::kCompressed;
    c->pse_broadcast_batch = dice->Once(2);
    c->pse_minus_inf_share = 0;
  }
}

void PickScores(Dice* dice, ForwardCase* c) {
  if (dice->Once(3)) c->scale = dice->OneOf({0.0F, -0.3F, 0.05F, 0.9F});
  if (c->pse_type != reference::PseType::kAddThenScale && dice->Once(5)) c->softcap = dice->OneOf({0.5F, 5.0F, 50.0F});
  if (dice->Once(4)) {
    c->sink = true;
    using enum reference::SinkForm;
    c->sink_form = dice->OneOf({kPerHead, kPerRowOfAll, kPerRow});
    // Packed sequences have no batch elements that could share sinks.
    if (c->packed() && c->sink_form == kPerRowOfAll) c->sink_form = kPerRow;
  }
  if (dice->Once(3)) {
    c->dropout = dice->OneOf({DropoutForm::kMask, DropoutForm::kSeed});
    c->keep_prob = dice->OneOf({0.05F, 0.5F, 0.9F, 1.0F});
  }
  c->wants_max = !dice->Once(3);
  c->wants_sum = !dice->Once(3);
  c->wants_lse = !dice->Once(3);
}

void PickPlaces(Dice* dice, ForwardCase* c) {
  if (dice->Once(4)) c->packing = Packing::kTogether;
  if (dice->Once(2)) c->padding = {.inner = dice->Pick(0, 9), .middle = dice->Pick(0, 9), .outer = dice->Pick(0, 9)};
  c->placement.place = dice->OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c->placement.place == Place::kInside) c->placement.misalignment = dice->Pick(0, 17);
}

}  // namespace

ForwardCase RandomForwardCase(uint64_t seed) {
  Dice dice(seed);
  ForwardCase c;
  c.seed = seed;
  PickSizes(&dice, &c);
  PickMask(&dice, &c);
  PickBias(&dice, &c);
  PickScores(&dice, &c);
  PickPlaces(&dice, &c);
  return c;
}

}  // namespace fa::test
