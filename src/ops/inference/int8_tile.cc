// One tile of int8 attention: some 128 query rows against whole rows of keys, in transposed form.
//
//   for each strip of queries (along the vector lanes):
//     S^T[key][q]  = K (broadcast words) x Q^T panel        exact in int32, stored as f32
//     passes: pse, masks                                    as in the forward
//     P8^T         = min(rint(quant 2^(S^T - max)), limit)  max of the whole row; over the scores, in words
//     O^T[c][q]    = V (broadcast words) x P8^T             exact in int32, rows of more than 65536 keys in int64
//   O = O^T deq_scale2 / sum.
//
// Memory: the scores of a strip's whole rows, sk * width floats, stay in L2 up to some 4096 keys. Computing Q K^T twice
// instead, first only for the maximum, reached 57 % of the peak, not 81 % (D = 128, S = 2048).

#include "ops/inference/int8_tile.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>

#include "core/kernels/kernel_facts.h"
#include "ops/plan/carver.h"
#include "ops/plan/plan_machine.h"

namespace fa::ops {
namespace {

using core::kernels::kInt8ProductKeys;
using tiling::Interval;

// Up to this number of keys, the scores of the widest strip take at most half of 1 MiB of L2. With more keys, narrower
// strips are used, which have half of the scores.
constexpr int64_t kWideStripKeys = 4096;

// Returns whether the kernels that this level uses for bf16 have a strip of the width of these int8 kernels. PassesOf
// takes the passes of that strip.
constexpr bool HasPasses(const core::kernels::Int8Facts& words) {
  const core::kernels::LevelFacts passes = core::kernels::FactsOf(words.isa, DType::kBF16);
  return std::any_of(passes.strips, passes.strips + passes.strip_count,
                     [&](const auto& strip) { return strip.width == words.width; });
}
static_assert(std::all_of(std::begin(core::kernels::registry::kInt8), std::end(core::kernels::registry::kInt8),
                          HasPasses));
// A pack task stages kKeyStep rows, one byte per column, in scratch. Scratch has a float for each lane of the widest
// strip per column, so the rows fit.
static_assert(std::all_of(std::begin(core::kernels::registry::kInt8), std::end(core::kernels::registry::kInt8),
                          [](const auto& words) {
                            return core::kernels::Int8FactsOf(words.isa).strips[0].width >= kKeyStep;
                          }));

Int8Scratch Layout(Carver& carver, const tiling::AttentionProblem& problem, DType out, int64_t slot_rows,
                   const core::kernels::Int8Table& kernels) {
  const int64_t width = kernels.strips[0].width, dv = problem.dv;
  Int8Scratch scratch;
  scratch.panel = carver.Array<uint32_t>(kernels.Words(problem.d), width);
  scratch.scores = carver.Floats(slot_rows, width);
  scratch.product = carver.Array<int32_t>(dv, width);
  if (slot_rows > kInt8ProductKeys) scratch.total = carver.Array<int64_t>(dv, width);
  scratch.state = carver.Floats(dv, width);
  if (out == DType::kI8) scratch.staging = carver.Floats(width, dv);
  return scratch;
}

}  // namespace

const core::kernels::Int8Kernels& Int8Kernels::ForRows(int64_t rows, int64_t sk) const {
  int i = sk <= kWideStripKeys ? 0 : words.strip_count - 1;
  while (i + 1 < words.strip_count && words.strips[i + 1].width >= rows) ++i;
  return words.strips[i];
}

const core::kernels::StripKernels& Int8Kernels::PassesOf(const core::kernels::Int8Kernels& strip) const {
  const auto* end = passes.strips + passes.strip_count;
  const auto* found = std::find_if(passes.strips, end, [&](const auto& of) { return of.width == strip.width; });
  assert(found != end);  // a static_assert above ensures that a strip is found
  return *found;
}

Int8Kernels Int8KernelsOf(const Context& context) {
  const core::kernels::Int8Table& words = core::kernels::Int8KernelsFor(context.isa());
  // The passes take f32 scores, so the passes of any type's strips serve. The strips of bf16 are chosen, because at a
  // level with a tile unit they have the widths of the int8 strips.
  return {words, core::kernels::Kernels(words.isa, DType::kBF16)};
}

size_t Int8Scratch::Bytes(const tiling::AttentionProblem& problem, DType out, int64_t slot_rows,
                          const core::kernels::Int8Table& kernels) {
  Carver carver(nullptr);
  Layout(carver, problem, out, slot_rows, kernels);
  return carver.used();
}

Int8Scratch Int8Scratch::Carve(std::byte* memory, const tiling::AttentionProblem& problem, DType out, int64_t slot_rows,
                               const core::kernels::Int8Table& kernels) {
  Carver carver(memory);
  return Layout(carver, problem, out, slot_rows, kernels);
}

Int8Tile::Int8Tile(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan, const Int8Kernels& kernels,
                   const ForwardRows& rows, const ProductScales& scales, const OutputQuantization* quantization,
                   const Int8Buffers& buffers, std::byte* workspace)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      rows_(rows),
      scales_(scales),
      quantization_(quantization),
      buffers_(buffers),
      workspace_(workspace),
      score_tile_(problem, kernels.passes, rows.scores),
      panels_(problem, plan, kernels.words,
              {rows.k, rows.v, static_cast<int>(score_tile_.passes().scale().q_multiplier)},
              workspace + buffers.slots) {}

void Int8Tile::operator()(int32_t task, int worker) {
  const auto tiles = static_cast<int64_t>(plan_.items.size()), packs = static_cast<int64_t>(plan_.packs.size());
  if (task >= tiles + packs) return;
  std::byte* memory = workspace_ + buffers_.scratch + static_cast<size_t>(worker) * buffers_.scratch_bytes;
  const Int8Scratch scratch =
      Int8Scratch::Carve(memory, problem_, rows_.out.rows.dtype, plan_.slot_rows, kernels_.words);
  if (task < tiles) {
    RunTile(plan_.items[static_cast<size_t>(task)], scratch);
  } else {
    panels_.Pack(plan_.packs[static_cast<size_t>(task - tiles)],
                 {reinterpret_cast<std::byte*>(scratch.panel), reinterpret_cast<std::byte*>(scratch.product)});
  }
}

void Int8Tile::RunTile(const tiling::ForwardItem& item, const Int8Scratch& scratch) const {
  const FoldedRows rows{item.sequence, item.head_begin, item.heads, item.row_begin, item.row_end};
  const int64_t sk = problem_.sequences[static_cast<size_t>(item.sequence)].sk;
  for (int64_t first = 0; first < rows.size();) {
    const core::kernels::Int8Kernels& words = kernels_.ForRows(rows.size() - first, sk);
    const Strip strip = MakeStrip(problem_, kernels_.PassesOf(words), rows, first);
    RunStrip(strip, words, item.slot, scratch);
    first += strip.lanes.count;
  }
}

void Int8Tile::RunStrip(const Strip& strip, const core::kernels::Int8Kernels& words, int32_t slot,
                        const Int8Scratch& scratch) const {
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.lanes.sequence)];
  const Interval keys = score_tile_.KeptKeys(strip, {0, sequence.sk});
  const ScoreScale& scale = score_tile_.passes().scale();
  LaneArray<float> row_max, row_sum = {};
  if (!keys.empty()) {
    LaneArray<const void*> rows;
    RowAddresses(rows_.q, strip, sequence.q_offset, rows);
    words.pack_queries({rows, DType::kI8, strip.lanes.count}, problem_.d, static_cast<int>(scale.q_multiplier),
                       scratch.panel);
    const auto products = [&](Interval part, float* s, float* max, FetchRuns* reads = nullptr) {
      if (reads != nullptr) reads->Fetch();
      words.scores(panels_.K(slot, part.begin), panels_.Start(slot, part.begin), part.size(), panels_.words(),
                   scratch.panel, s, max);
    };
    score_tile_.Fill(strip, keys, products, nullptr, scratch.scores, row_max, nullptr);
    words.softmax(scratch.scores, keys.size(), scale.exp2_factor, scales_.quant, scales_.limit, row_max, row_sum);
    Product(words, keys, slot, scratch);
  }
  LaneArray<float> multiplier = {};
  LaneArray<int32_t> zero = {};
  for (int64_t i = 0; i < strip.lanes.count; ++i) {
    zero[i] = row_sum[i] == 0 ? 1 : 0;  // in a row with keys, some probability is not 0, so neither is the sum
    multiplier[i] = scales_.product / row_sum[i];
  }
  WriteOutputRows(rows_.out, problem_.dv, sequence.q_offset, strip,
                  {.state = scratch.state, .multiplier = multiplier, .zero = zero, .staging = scratch.staging},
                  quantization_);
}

/// Multiplies V with the quantized probabilities in scratch.scores exactly, and rounds the sums once to f32 in
/// scratch.state.
void Int8Tile::Product(const core::kernels::Int8Kernels& words, Interval keys, int32_t slot,
                       const Int8Scratch& scratch) const {
  const int64_t size = problem_.dv * words.width;
  const auto* p8 = reinterpret_cast<const uint32_t*>(scratch.scores);
  const auto multiply = [&](int64_t begin, int64_t count) {
    words.product(panels_.V(slot, begin), panels_.v_stride(), count,
                  p8 + (begin - keys.begin) / kernels_.words.group * words.width, problem_.dv, scratch.product);
  };
  if (keys.size() <= kInt8ProductKeys) {
    multiply(keys.begin, keys.size());
    for (int64_t i = 0; i < size; ++i) scratch.state[i] = static_cast<float>(scratch.product[i]);
    return;
  }
  std::fill_n(scratch.total, size, int64_t{0});
  for (int64_t begin = keys.begin; begin < keys.end; begin += kInt8ProductKeys) {
    multiply(begin, std::min(kInt8ProductKeys, keys.end - begin));
    for (int64_t i = 0; i < size; ++i) scratch.total[i] += scratch.product[i];
  }
  for (int64_t i = 0; i < size; ++i) scratch.state[i] = static_cast<float>(scratch.total[i]);
}

}  // namespace fa::ops
