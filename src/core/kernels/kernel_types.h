#ifndef FA_CORE_KERNELS_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_KERNEL_TYPES_H_

#include <cstdint>

#include "core/integer.h"
#include "core/kernels/tile_loop_types.h"
#include "fa/context.h"
#include "fa/tensor.h"

/// What the SIMD kernels do. They get pointers and strides, and know neither tasks nor tensor layouts.
///
/// A *strip* is `width` query rows that lie along the vector lanes. All tiles of a strip are transposed: scores and
/// probabilities are [keys][width], packed queries are [d][width], and the unfinished output is [dv][width]. Every lane
/// computes its own row in the same order whatever the width. So a row's bits do not depend on the strip in which it
/// lies.
namespace fa::core::kernels {

/// A masked score, which exp2 turns into exactly 0.
inline constexpr float kMaskedScore = -__builtin_inff();
/// If the magnitude of factor * max is at most this, kernels of pairs subtract factor * max from exponents as one
/// rounded number (softmax_shift.inc). The rounding changes an exponent by at most 2^-10. So it changes the result of a
/// row with one key by less than half a unit of bf16. A shift of 2^31 or more could make every probability of a row 0,
/// or one of them infinite.
inline constexpr float kLargestShift = 0x1p15f;
/// A masked probability in the exact path (product_exact, outer_exact). It is -0, so its sign tells it from a
/// probability that merely underflowed.
inline constexpr float kMaskedProbability = -0.0f;

/// The bytes of a cache line.
inline constexpr int64_t kLineBytes = 64;

/// The cache lines that strips prefetch while they multiply, a few at a time. If all of them were prefetched at once,
/// they would hold up the loads that follow.
struct FetchList {
  struct Run {
    const char* begin = nullptr;
    const char* end = nullptr;
  };

  const Run* run = nullptr;  ///< the next run of lines
  const Run* end = nullptr;
  const char* at = nullptr;  ///< the next line, which belongs to the run before `run`
  const char* at_end = nullptr;
  bool into_l1 = false;  ///< whether the lines go into L1; else they go into L2
};

/// How the rows of a RowBlock lie.
enum class RowForm : uint8_t {
  kApart,   ///< from `data` on, `stride` elements apart
  kListed,  ///< at the addresses in `rows`
  kPaired,  ///< in groups from `data` on, as pair_rows writes them; `stride` is the number of columns of a group
};

/// Rows of K, of V or of queries. StripFacts and RowFunctions say which forms and types a kernel takes.
struct RowBlock {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
  /// A hint, which changes no bits: a kernel may prefetch the row that lies this many rows after the row that it reads.
  /// With 0 it prefetches nothing. If the rows are listed, the list goes on with this many further addresses, because a
  /// kernel may read them.
  int64_t fetch_ahead = 0;
  bool paired = false;                ///< whether the form is kPaired
  const void* const* rows = nullptr;  ///< the addresses of rows in the form kListed, else null
  /// A hint for strips: while they read the rows, they prefetch the next `fetch_lines` lines of the list `fetch`.
  FetchList* fetch = nullptr;
  int64_t fetch_lines = 0;
  /// Only for the form kPaired: the number of rows per group, and how many rows of the first group lie before row 0.
  /// Both are even.
  int64_t group = 2, skip = 0;

  [[nodiscard]] constexpr RowForm form() const {
    return rows != nullptr ? RowForm::kListed : paired ? RowForm::kPaired : RowForm::kApart;
  }
};

struct RowTarget {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
};

/// One row per lane, in the caller's memory: `rows[i]` points at the first element of lane i's row.
struct LaneRows {
  const void* const* rows = nullptr;
  DType dtype = DType::kF32;
  int64_t count = 0;  ///< lanes in use; nothing is read for the other lanes
};

/// The elements that the products multiply.
enum class Operands : uint8_t {
  kF32,
  /// Words of two bf16 that are neighbours in the sum of a product. Scores sum along the head, so two neighbours in a
  /// row of K are already one word. For sums over keys, pair_rows makes words of rows, and pair_keys or pair_lanes
  /// makes words of probabilities. Scores, sums and states are f32.
  kBF16Pairs,
};

/// The arguments of `scores` of a strip.
struct ScoreArgs {
  RowBlock k;
  int64_t keys = 0;
  const float* panel = nullptr;
  int64_t d = 0;
  bool accumulate = false;
  float* s = nullptr;
  float* row_max = nullptr;
};

/// The arguments of a softmax of a strip.
struct SoftmaxArgs {
  float* s = nullptr;
  int64_t keys = 0;
  float factor = 0;
  const float* block_max = nullptr;
  float *row_max = nullptr, *row_sum = nullptr, *alpha = nullptr;
};

/// How many keys one word of keep bits covers.
inline constexpr int64_t kKeepBits = 32;

/// The dropout of a tile. Bit key % kKeepBits of words[key / kKeepBits][lane] says whether a probability is kept. Kept
/// probabilities are multiplied by `multiplier`.
struct KeepArgs {
  const uint32_t* words = nullptr;
  float multiplier = 1;
};

/// The arguments of `backward_pairs`.
struct BackwardPairsArgs {
  float *s = nullptr, *dp = nullptr;  ///< in: what backward_softmax takes; out: undefined
  int64_t keys = 0;
  float factor = 0;
  const float *shift = nullptr, *delta = nullptr;
  KeepArgs keep = {};  ///< without words there is no dropout
  float ds_multiplier = 1;
  // These are the outputs. They overlap neither s nor dp nor each other.
  float *p_lanes = nullptr, *ds_lanes = nullptr;  ///< in the layout that pair_lanes writes
  float* ds_keys = nullptr;                       ///< in the layout that pair_keys writes
};

/// The arguments of `product` of a strip.
struct ProductArgs {
  RowBlock v;
  int64_t keys = 0;
  const float* p = nullptr;
  int64_t dv = 0;
  const float* alpha = nullptr;
  float* o = nullptr;
};

/// Returns whether elements x of this type stand for numbers (x + offset) * scale. An element of kI4x8 holds eight
/// numbers.
[[nodiscard]] constexpr bool IsCompressed(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kI4x8;
}

/// The scales and offsets of compressed rows, in which an element x stands for (x + offset) * scale. Column c of row r
/// has scale and offset number r * row_step + c / group * group_step. If group is 0, it has number r * row_step.
struct Antiquantization {
  const float* scale = nullptr;
  const float* offset = nullptr;  ///< offsets; null: all offsets are 0
  int64_t row_step = 0;           ///< distance between rows, in numbers; 0: all rows have the same scales and offsets
  int64_t group = 0;              ///< columns that share a scale and an offset; 0: all columns of a row
  int64_t group_step = 1;         ///< distance between groups, in numbers
};

/// The arguments of `attend` (FewRowLoops). K and V have the same type, which AttendedHeads must allow.
struct AttendArgs {
  /// The columns of a head must be a multiple of kColumns, and at most kMostColumns.
  static constexpr int64_t kColumns = 32, kMostColumns = 256;
  static constexpr int64_t kMostStep = 32;  ///< the most keys per step
  static constexpr int64_t kMostGroups = kMostColumns / kColumns;
  [[nodiscard]] static constexpr bool Fits(int64_t columns) {
    return columns > 0 && columns % kColumns == 0 && columns <= kMostColumns;
  }

  RowBlock k, v;  ///< either both are listed and prefetched, or neither is
  int64_t keys = 0;
  const float* panel = nullptr;  ///< the queries as pack_queries packs them from rows of the type of K
  int64_t d = 0, dv = 0;
  float factor = 0;
  float *row_max = nullptr, *row_sum = nullptr;
  float* o = nullptr;
  bool started = false;  ///< whether o holds a state already; else o starts at 0
  /// A hint, which changes no bits, for heads whose K and V have equally many columns: the two loops of a step prefetch
  /// rows for each other into L1. The loop of scores prefetches the step's rows of V, and the product prefetches the
  /// next step's rows of K. If the rows are listed, the lists then go on with kMostStep further addresses.
  bool brings = false;
  /// Only for `attend_compressed`: the scales and offsets of K and V. Either each row, or each column (group is 1), has
  /// one scale and one offset. Or each row has one scale and one offset per group of columns. In that case there are at
  /// most kMostGroups groups, and a group has a multiple of kColumns columns. Moreover row_step is 1, or group_step is
  /// 1 where TakesGroupsOfRows (compressed/group_order.h) allows that.
  Antiquantization k_numbers = {}, v_numbers = {};
};

/// The heads that `attend` takes, among those that AttendArgs::Fits allows.
struct AttendedHeads {
  int64_t most_columns = 0;  ///< the most columns of a head; 0: no head
  bool pairs = false;        ///< whether `attend` multiplies pairs of bf16; otherwise it multiplies f32
  bool any_float = false;    ///< if `attend` multiplies f32: whether it also takes f16 and bf16
};

/// What planning must know about the kernels of one strip width at one level. It comes from a line of kernels.inc and
/// is known on any machine.
struct StripFacts {
  const char* name = nullptr;  ///< for example "f32_8x32_avx512"
  Isa isa = Isa::kPortable;
  int64_t width = 0;       ///< lanes of a tile
  int64_t rows = 0;        ///< query rows per call, at most `width`; the other lanes get scores of 0
  bool any_dtype = false;  ///< few rows: K and V may have any float type
  Operands operands = Operands::kF32;
  /// Only for kernels of pairs. If a panel's number of columns is a multiple of this, another panel may follow it in
  /// memory. Both can then be read as one panel.
  int64_t panel_group = 2;
  bool state_by_row = false;       ///< whether the output state is [row][dv] instead of [dv][lane]; bits are the same
  bool scores_by_address = false;  ///< whether `scores` and `pair_rows` also take lists of the rows' addresses
  bool in_place = false;  ///< for pairs: whether `scores` and `product` take only such lists, and read rows in place
  AttendedHeads attended = {};

  /// Returns whether scores take rows of K of this form and type.
  [[nodiscard]] constexpr bool ScoresTake(RowForm form, DType dtype) const {
    if (any_dtype) return form != RowForm::kPaired;
    if (dtype != OperandType()) return false;
    return form == RowForm::kListed ? in_place || scores_by_address : form == RowForm::kApart && !in_place;
  }
  /// Returns whether products take rows of V of this form and type.
  [[nodiscard]] constexpr bool ProductTakes(RowForm form, DType dtype) const {
    if (any_dtype) return form != RowForm::kPaired;
    if (dtype != OperandType()) return false;
    if (in_place) return form == RowForm::kListed;
    return form == (operands == Operands::kBF16Pairs ? RowForm::kPaired : RowForm::kApart);
  }
  [[nodiscard]] constexpr DType OperandType() const {
    return operands == Operands::kBF16Pairs ? DType::kBF16 : DType::kF32;
  }
  /// Returns whether `attend`, or for compressed types attend_compressed, takes heads with d and dv columns of this
  /// type.
  [[nodiscard]] constexpr bool AttendsTo(DType dtype, int64_t d, int64_t dv) const {
    if (!AttendArgs::Fits(d) || !AttendArgs::Fits(dv)) return false;
    if (IsCompressed(dtype)) return any_dtype;
    if (d > attended.most_columns || dv > attended.most_columns) return false;
    switch (dtype) {
      case DType::kF32: return !attended.pairs;
      case DType::kF16: return attended.any_float;
      case DType::kBF16: return attended.pairs || attended.any_float;
      default: return false;
    }
  }
  /// Returns how many rows of `width` floats a panel of d columns takes.
  [[nodiscard]] constexpr int64_t PanelRows(int64_t d) const {
    return operands == Operands::kBF16Pairs ? CeilDiv(d, 2) : d;
  }
  /// Returns how many floats per key a tile has when `outer` reads it.
  [[nodiscard]] constexpr int64_t OuterWidth() const { return operands == Operands::kBF16Pairs ? width / 2 : width; }
};

/// Passes over a tile of scores s[keys][width]. All strips and kernels of few rows have these passes. If a pass takes
/// `row_max`, it raises row_max to the scores that it writes: row_max[lane] = max(row_max[lane], s[.][lane]).
struct ScorePasses {
  /// s *= scale, or with softcap > 0: s = softcap * tanh(s * scale / softcap).
  void (*scale_scores)(float* s, int64_t keys, float scale, float softcap, float* row_max);
  /// s = pre * s + post * bias(lane)[key]. In lanes that are not in use, s may stay as it is.
  void (*add_bias)(float* s, int64_t keys, float pre, float post, const LaneRows& bias, float* row_max);
  /// s = pre * s - slope[lane] * f(|distance[lane] + key|), where f(x) is the square root of x if `square_root` is set,
  /// and otherwise x.
  void (*add_slopes)(float* s, int64_t keys, float pre, const float* slope, const int32_t* distance, bool square_root,
                     float* row_max);
  /// s = fill where key is outside [begin[lane], end[lane]).
  void (*mask_interval)(float* s, int64_t keys, const int32_t* begin, const int32_t* end, float fill);
  /// Sets bit key % kKeepBits of words[key / kKeepBits][lane] where byte `key` of drop(lane) is not 0. All other bits
  /// of the words, also the words of lanes that are not in use, are 0. Returns whether a bit is set.
  bool (*drop_words)(const LaneRows& drop, int64_t keys, uint32_t* words);
  /// s = fill where bit key % kKeepBits of words[key / kKeepBits][lane] is set.
  void (*mask_words)(float* s, int64_t keys, const uint32_t* words, float fill, float* row_max);
  /// row_max[lane] = max(row_max[lane], s[.][lane]).
  void (*block_max)(const float* s, int64_t keys, float* row_max);

  // The next passes belong to the backward, and run over ds[keys][width].

  /// ds *= 1 - (capped / softcap)^2.
  void (*softcap_gradient)(float* ds, const float* capped, int64_t keys, float softcap);
  /// rows(lane)[key] (+)= multiplier * ds[key][lane].
  void (*bias_gradient)(const float* ds, int64_t keys, float multiplier, bool accumulate, void* const* rows,
                        DType dtype, int64_t count);
  /// sum[lane] += sum over keys of ds * f(|distance[lane] + key|), with f as in add_slopes.
  void (*slope_gradient)(const float* ds, int64_t keys, const int32_t* distance, bool square_root, float* sum);
};

/// Functions that round a tile s[keys][width] to bf16. Only strips of pairs have them.
struct PairTiles {
  /// pairs[key / 2][lane] = the word of s[key][lane] and s[key + 1][lane], for even keys. `pairs` may be s.
  void (*pair_keys)(const float* s, int64_t keys, float* pairs) = nullptr;
  /// Turns words that pair_keys wrote back into s[key][lane], in place.
  void (*unpair_keys)(float* s, int64_t keys) = nullptr;
  /// rounded[key][lane] = s[key][lane] as bf16, in the layout that `outer` takes. `rounded` may overlap s, but must not
  /// begin after s.
  void (*pair_lanes)(const float* s, int64_t keys, float* rounded) = nullptr;
  /// Computes what backward_softmax computes, or, if there are keep bits, what backward_softmax_dropout computes. P and
  /// ds_multiplier * dS are rounded to bf16, in the layouts that the products take.
  void (*backward_pairs)(const BackwardPairsArgs& x) = nullptr;
};

/// Functions that only kernels of few rows have. They are null at levels that lack them.
struct FewRowLoops {
  /// Computes scores (without `accumulate`) and, in the same loop, a product with V of the same type. So the loop reads
  /// memory without pauses. The scores and the product each have the bits that they have when they are computed alone.
  void (*scores_beside)(const RowBlock& k, int64_t keys, const float* panel, int64_t d, float* s, float* row_max,
                        const ProductArgs& product) = nullptr;

  /// Computes scores, online softmax and product. Every row sees all keys, and no pass changes the scores. `attend`
  /// takes only the heads that StripFacts::attended allows. With pairs of bf16 it rounds probabilities as strips of
  /// pairs do.
  void (*attend)(const AttendArgs& args) = nullptr;

  /// Does what `attend` does for compressed K and V, with heads that AttendArgs::Fits allows. Every level has this
  /// function.
  void (*attend_compressed)(const AttendArgs& args) = nullptr;
  /// Like attend_compressed, for int8 and int4 with queries of 16 bits. It rounds rows of Q and probabilities to 16-bit
  /// integers.
  void (*attend_integers)(const AttendArgs& args) = nullptr;
  /// Like attend_compressed, for 8-bit floats with bf16 queries. It rounds rows of Q and probabilities to bf16.
  void (*attend_byte_floats)(const AttendArgs& args) = nullptr;

  /// Returns the function for compressed keys of type `keys` and for queries of type `queries`.
  [[nodiscard]] auto AttendTo(DType keys, DType queries) const -> void (*)(const AttendArgs&) {
    const bool integers = keys == DType::kI8 || keys == DType::kI4x8;
    const auto words = integers ? attend_integers : attend_byte_floats;
    return words != nullptr && queries != DType::kF32 ? words : attend_compressed;
  }
};

/// The kernels of a strip or of few rows. For few rows the panel of queries is [row][d], and the output state is
/// [row][dv]. A strip with state_by_row has the state [row][dv], too. A panel of few rows serves keys of the queries'
/// type and f32 keys. It takes `width` floats per column, like a strip's panel.
struct StripFunctions {
  /// panel[c][lane] = multiplier * row(lane)[c] for c < d; unused lanes are 0. For kernels of pairs, rows are bf16 and
  /// the multiplier is 1, 0 or -1. In strips with in_place the order of the panel depends on d. So a panel must be read
  /// with the d with which it was packed.
  void (*pack_queries)(const LaneRows& rows, int64_t d, float multiplier, float* panel);

  /// s[key][lane] (+)= sum_c k[key][c] * panel[c][lane]. With `row_max`, row_max[lane] = max(row_max[lane],
  /// s[.][lane]).
  void (*scores)(const RowBlock& k, int64_t keys, const float* panel, int64_t d, bool accumulate, float* s,
                 float* row_max);

  /// Computes the online softmax of one key block, in base 2, with new_max = max(row_max, block_max). The scores become
  /// p = 2^(factor * (s - new_max)). Then alpha = 2^(factor * (row_max - new_max)), row_sum = row_sum * alpha + sum p
  /// and row_max = new_max. A power below 2^-126 becomes 0, so that no product meets a subnormal. Kernels of pairs
  /// write p in the layout of pair_keys.
  void (*softmax)(float* s, int64_t keys, float factor, const float* block_max, float* row_max, float* row_sum,
                  float* alpha);
  /// Does what softmax does, and then p = kept ? p * multiplier : 0. row_sum adds p before dropout.
  void (*softmax_dropout)(const SoftmaxArgs& x, const KeepArgs& keep);

  /// o[c][lane] = alpha[lane] * o[c][lane] + sum_key v[key][c] * p[key][lane]. If alpha is null, o starts at 0.
  void (*product)(const RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha, float* o);
  /// Does what product does, but skips every key of a lane whose p is kMaskedProbability. p is a tile of f32, even with
  /// operands of pairs. The function is slow, and serves only blocks whose V is not finite.
  void (*product_exact)(const RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha, float* o);
  /// o[c][lane] = own_weight[lane] * o[c][lane] + from_weight[lane] * from[c][lane].
  void (*add_state)(const float* from, const float* from_weight, const float* own_weight, int64_t dv, float* o);

  /// rows(lane)[c] = o[c][lane] * multiplier[lane], rounded once. A lane whose `zero` is not 0 is written as 0.
  void (*write_output)(const float* o, int64_t dv, const float* multiplier, const int32_t* zero, void* const* rows,
                       DType dtype, int64_t count);

  // The next functions turn the backward's scores into probabilities. They run over s[keys][width] and dp[keys][width].

  /// s = p = 2^(factor * s - shift[lane]), where powers below 2^-126 become 0, and dp = ds = p * (dp - delta[lane]).
  /// Both are 0 where s is kMaskedScore.
  void (*backward_softmax)(float* s, float* dp, int64_t keys, float factor, const float* shift, const float* delta);
  /// Works like backward_softmax, with dropout: dp = ds = p * (dropout(dp) - delta[lane]), and then s = dropout(p).
  void (*backward_softmax_dropout)(float* s, float* dp, int64_t keys, float factor, const float* shift,
                                   const float* delta, const KeepArgs& keep);

  ScorePasses passes;
  PairTiles pairs = {};
  FewRowLoops few_rows = {};

  const TileLoops* tile_loops = nullptr;  ///< null except for the tile unit's widest strips (RowFacts::attends_tiles)
};

/// The kernels of one strip width on one level. The functions are null for a level that this CPU lacks.
struct StripKernels : StripFacts, StripFunctions {};

/// The arguments of `outer`, which computes c[key][column] (+)= sum over rows of a(key, row) * b[row][column]. In the
/// backward, the rows are the lanes of several strips. a is a tile [strip][key][width], where row = strip * width +
/// lane.
struct OuterArgs {
  const float* a = nullptr;  ///< the tile a; for kernels of pairs, bf16 as pair_lanes writes it
  int64_t strip_stride = 0;  ///< floats from one strip's tile to the next
  int64_t width = 0;         ///< lanes of a strip; of the last strip only some may be in use
  int64_t rows = 0;          ///< lanes in use of all strips together
  const float* b = nullptr;  ///< the panel of rows that pack_rows writes
  int64_t b_rows = 0;        ///< rows of the panel b
  int64_t b_first = 0;       ///< the row of panel b that belongs to row 0 of the sum
  int64_t keys = 0, columns = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t c_group = 32;     ///< floats from 32 columns of c to the next 32; must be 32 without attends_tiles
  bool accumulate = false;  ///< whether products are added to c; else c starts at 0
  /// If not null, it replaces c and c_stride: the address of each key's row of c. No two keys share a row.
  float* const* c_rows = nullptr;
};

/// The most rows per group that pair_rows writes at any level.
inline constexpr int64_t kMostPairGroup = 32;
/// The number of elements along the depth whose products one instruction adds, at levels whose instructions multiply
/// blocks of pairs. At these levels pair_rows writes groups of this many rows.
inline constexpr int64_t kPairBlockDepth = 4;
/// How many words a row of a tile of the tile unit has.
inline constexpr int64_t kTileLanes = 16;

/// What planning must know about the kernels that do not depend on a strip.
struct RowFacts {
  int64_t panel_lanes = 0;  ///< floats of a vector in panels that pack_rows writes
  int64_t pair_group = 2;   ///< rows per group that pair_rows writes
  /// Whether the widest strip has tile_loops, for heads of a multiple of kColumns columns, and `outer` takes any
  /// c_group.
  bool attends_tiles = false;

  /// Returns how many floats a row takes in a panel that pack_rows writes: `columns`, rounded up to whole vectors.
  [[nodiscard]] constexpr int64_t PanelColumns(int64_t columns) const { return RoundUp(columns, panel_lanes); }
  /// Returns `rows`, rounded up to a whole group of pair_rows.
  [[nodiscard]] int64_t PairedRows(int64_t rows) const { return RoundUp(rows, pair_group); }
  /// Returns how many floats pair_rows writes for `rows` rows.
  [[nodiscard]] int64_t PairedFloats(int64_t rows, int64_t columns) const { return PairedRows(rows) / 2 * columns; }
  /// Returns the distance in floats from the first column of a group to column `column`.
  [[nodiscard]] int64_t PairedColumn(int64_t column) const { return column * (pair_group / 2); }
  /// Returns a RowBlock for the rows that pair_rows has written at `words`.
  [[nodiscard]] RowBlock Paired(const float* words, int64_t columns, int64_t fetch_ahead = 0) const {
    RowBlock rows{words, DType::kBF16, columns, fetch_ahead, true};
    rows.group = pair_group;
    return rows;
  }
};

/// Kernels that do not depend on a strip.
struct RowFunctions {
  /// dst[r][c] = src(r)[c] as f32, r < rows, c < columns.
  void (*widen)(const RowBlock& src, int64_t rows, int64_t columns, float* dst, int64_t dst_stride);
  /// dst(r)[c] = multiplier * src[r][c], rounded once.
  void (*narrow)(const float* src, int64_t src_stride, int64_t rows, int64_t columns, float multiplier,
                 const RowTarget& dst);
  /// Packs rows for `outer`. The columns are cut into groups of neighbouring columns, and each group is [rows][columns
  /// of the group], padded with zeros. Without groups, rows whose length is a power of two would share a few sets of
  /// L1. For kernels of pairs, a group has CeilDiv(rows, 2) words of two rows per column, in the order that `outer`
  /// takes.
  void (*pack_rows)(const RowBlock& src, int64_t rows, int64_t columns, float* panel);
  bool (*all_finite)(const void* x, DType dtype, int64_t n);
  /// y = 2^x elementwise, with an error of at most 2 ulp. It is exactly 0 for -inf; subnormal results are rounded; a
  /// NaN is kept.
  void (*exp2)(const float* x, int64_t n, float* y);
  void (*outer)(const OuterArgs& args);
  /// Does what `outer` does, but skips every element of a that is kMaskedProbability. The function is slow, and serves
  /// only blocks whose b is not finite.
  void (*outer_exact)(const OuterArgs& args);
  /// Returns the sum of a[i] * b[i] in f32, for rows of any float type.
  float (*dot)(const void* a, DType a_type, const void* b, DType b_type, int64_t n);
  /// dst[r][c] = the number for which the compressed element src(r)[c] stands. The function prefetches as `scores`
  /// does.
  void (*dequantize)(const RowBlock& src, int64_t rows, int64_t columns, const Antiquantization& by, float* dst,
                     int64_t dst_stride);
  /// For kernels of pairs: writes words of src(r)[c] and src(r + 1)[c] for even r. A group of `pair_group` rows becomes
  /// words [column][pair_group / 2], with room for dst_stride columns. So groups of two rows are words [row /
  /// 2][column]. The last group is filled up with rows of 0.
  void (*pair_rows)(const RowBlock& src, int64_t rows, int64_t columns, float* dst, int64_t dst_stride) = nullptr;
  /// With attends_tiles only: packs K for the tile loops. A chunk has 32 rows, and each chunk begins `chunk_floats`
  /// floats after the previous one. So other columns of the same rows can lie between the chunks of one call. The last
  /// chunk is filled up with rows of 0.
  void (*pack_key_tiles)(const RowBlock& src, int64_t rows, int64_t columns, float* dst,
                         int64_t chunk_floats) = nullptr;
  /// With attends_tiles only: packs V for the tile loops. Each 32 columns begin `block_floats` floats after the
  /// previous 32.
  void (*pack_value_tiles)(const RowBlock& src, int64_t rows, int64_t columns, float* dst,
                           int64_t block_floats) = nullptr;
  /// Does what `outer` does for `args` and then for `then`, but loads and stores c only once. Both calls accumulate,
  /// and they differ only in a and b. At levels without this function the pointer is null.
  void (*outer_both)(const OuterArgs& args, const OuterArgs& then) = nullptr;
};

struct RowKernels : RowFacts, RowFunctions {};

inline constexpr int kMostStrips = 3, kMostFewRows = 4;  ///< the most lines of kernels.inc that a level has

/// The kernels of a level: strips from wide to narrow, and kernels of few rows from few to more rows.
struct KernelTable {
  Isa isa = Isa::kPortable;
  const StripKernels* strips = nullptr;
  int strip_count = 0;
  const StripKernels* few = nullptr;
  int few_count = 0;
  const RowKernels* rows = nullptr;
  /// The strips with state_by_row, in the order of `strips`; null if the level has none.
  const StripKernels* row_state = nullptr;
  /// For pairs: the strip with in_place, whose output state lies by rows; null if the level has none.
  const StripKernels* heads_in_place = nullptr;

  /// Returns whether the strips multiply bf16 pairs.
  [[nodiscard]] bool pairs() const { return strips[0].operands == Operands::kBF16Pairs; }
  [[nodiscard]] const StripKernels& widest() const { return strips[0]; }
  [[nodiscard]] const StripKernels& narrowest() const { return strips[strip_count - 1]; }
  /// Returns the first strip for `rows` rows. The rows are split into as few strips as the widest strip allows, of
  /// about equal width. 64 rows become two strips of 32 rather than a strip of 48 and a strip of 16, because the
  /// kernels of 16 are the slowest.
  [[nodiscard]] const StripKernels& ForRows(int64_t rows) const {
    const int64_t strips_needed = CeilDiv(rows, widest().width);
    const int64_t share = strips_needed == 0 ? 0 : CeilDiv(rows, strips_needed);
    int i = strip_count - 1;
    while (i > 0 && strips[i].width < share) --i;
    return strips[i];
  }
  /// Returns the strip of the same width whose output state lies by rows, or `strip` itself if the level has none.
  [[nodiscard]] const StripKernels& WithRowState(const StripKernels& strip) const {
    return row_state != nullptr ? row_state[&strip - strips] : strip;
  }
  /// Returns the kernels for the fewest rows, among the kernels of few rows that take `count` rows. Returns null if
  /// there are none. Kernels of few rows add along the head in another order than strips, so their bits differ. Callers
  /// choose kernels of few rows only by properties of the sequence, so a sequence's bits do not depend on the rest of
  /// the call.
  [[nodiscard]] const StripKernels* ForFewRows(int64_t count) const {
    for (int i = 0; i < few_count; ++i) {
      if (few[i].rows >= count) return &few[i];
    }
    return nullptr;
  }
};

/// Returns the kernels of a level for operands of a type. A type without kernels of its own gets the f32 kernels, to
/// which operands are widened. A level that this CPU lacks has facts only, and its functions are null.
[[nodiscard]] const KernelTable& Kernels(Isa isa, DType dtype = DType::kF32);
/// Returns the portable level with OpenBLAS' sgemm for the products. The bits of results then depend on OpenBLAS.
[[nodiscard]] const KernelTable& PortableBlasKernels();

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_TYPES_H_
