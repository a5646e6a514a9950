#ifndef FA_CORE_KERNELS_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_KERNEL_TYPES_H_

#include <cstdint>

#include "core/integer.h"
#include "fa/context.h"
#include "fa/tensor.h"

/// The contracts of the SIMD kernels. Kernels are given pointers and strides; they know neither tasks nor tensor
/// layouts.
///
/// A *strip* is `width` query rows that lie along the vector lanes. Its tiles are transposed: scores and probabilities
/// [keys][width], the packed queries [d][width], the output state [dv][width]. Every lane computes its own row in the
/// same order whatever the width. So a row's bits do not depend on the strip in which it lies.
namespace fa::core::kernels {

/// A masked score, which exp2 turns into exactly 0.
inline constexpr float kMaskedScore = -__builtin_inff();
/// The largest |factor * max| by which kernels of pairs may shift an exponent. The rounding of such a shift moves the
/// exponent by no more than 2^-10. That moves the result of a row with one key by less than half a unit of bf16. A
/// shift of 2^31 or more could make every probability of a row 0, or one of them infinite.
inline constexpr float kLargestShift = 0x1p15f;
/// A masked probability in the exact path (product_exact, outer_exact). It is -0, so its sign tells it from a
/// probability that merely underflowed.
inline constexpr float kMaskedProbability = -0.0f;

/// The bytes of a cache line.
inline constexpr int64_t kLineBytes = 64;

/// The lines that strips fetch while they multiply, a few at a time. Fetched at once, the lines would fill the queue of
/// outstanding misses and hold up the loads that follow.
struct FetchList {
  struct Run {
    const char* begin = nullptr;
    const char* end = nullptr;
  };

  const Run* run = nullptr;  ///< the next run
  const Run* end = nullptr;
  const char* at = nullptr;  ///< the next line, in the run before `run`
  const char* at_end = nullptr;
  bool into_l1 = false;  ///< whether the lines go into L1; else they go into L2
};

/// How the rows of a RowBlock lie.
enum class RowForm : uint8_t {
  kApart,   ///< from `data` on, `stride` elements apart
  kListed,  ///< at the addresses in `rows`
  kPaired,  ///< from `data` on, in the groups that pair_rows writes; a group has `stride` columns of words
};

/// Rows of K, of V or of queries. StripFacts and RowFunctions say which forms and types a kernel takes.
struct RowBlock {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
  /// A hint, which changes no bits: a kernel may fetch the row that is this many rows after the row that it reads. With
  /// 0 nothing is fetched. A list of addresses has this many addresses after the last row, because a kernel may read
  /// them.
  int64_t fetch_ahead = 0;
  bool paired = false;                ///< whether the form is kPaired
  const void* const* rows = nullptr;  ///< the addresses of rows in the form kListed, else null
  /// A hint for strips: while they read the rows, they fetch the next `fetch_lines` lines of the list `fetch`.
  FetchList* fetch = nullptr;
  int64_t fetch_lines = 0;
  /// Only for the form kPaired: the rows of a group, and the number of rows of the first group that lie before row 0.
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
  /// Words of two bf16, which are neighbours along the product's sum. Rows of K stay as they are. pair_rows lays out
  /// rows whose sum runs over keys. pair_keys or pair_lanes lays out probabilities. Scores, sums and states are f32.
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

/// The number of keys of a word of keep bits.
inline constexpr int64_t kKeepBits = 32;

/// Dropout over a tile. Bit key % kKeepBits of words[key / kKeepBits][lane] says whether a probability is kept. A kept
/// probability is multiplied by `multiplier`.
struct KeepArgs {
  const uint32_t* words = nullptr;
  float multiplier = 1;
};

/// The arguments of `backward_pairs`.
struct BackwardPairsArgs {
  float *s = nullptr, *dp = nullptr;  ///< in: as backward_softmax takes them; out: undefined
  int64_t keys = 0;
  float factor = 0;
  const float *shift = nullptr, *delta = nullptr;
  KeepArgs keep = {};  ///< no words mean no dropout
  float ds_multiplier = 1;
  // The next members are outputs, which overlap neither s nor dp nor each other.
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

/// Returns whether elements of a type stand for numbers (x + offset) * scale. An element of kI4x8 has eight columns.
[[nodiscard]] constexpr bool IsCompressed(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2 || dtype == DType::kI4x8;
}

/// The numbers for which compressed elements x stand: (x + offset) * scale. Column c of row r has the scale and the
/// offset number r * row_step + c / group, or number r * row_step if group is 0.
struct Antiquantization {
  const float* scale = nullptr;
  const float* offset = nullptr;  ///< null: 0
  int64_t row_step = 0;           ///< from one row to the next; 0: all rows have the same numbers
  int64_t group = 0;              ///< columns that share a number; 0: all columns of a row
};

/// The arguments of `attend` of few rows, which computes attention. K and V have the same type, which AttendedHeads
/// allows.
struct AttendArgs {
  /// The columns of a head must be a multiple of kColumns, and at most kMostColumns.
  static constexpr int64_t kColumns = 32, kMostColumns = 256;
  static constexpr int64_t kMostStep = 32;  ///< keys of a step
  [[nodiscard]] static constexpr bool Fits(int64_t columns) {
    return columns > 0 && columns % kColumns == 0 && columns <= kMostColumns;
  }

  RowBlock k, v;  ///< both are read by address and fetched ahead, or neither is
  int64_t keys = 0;
  const float* panel = nullptr;  ///< the queries as pack_queries packs them, from rows of K's type
  int64_t d = 0, dv = 0;
  float factor = 0;
  float *row_max = nullptr, *row_sum = nullptr;
  float* o = nullptr;
  bool started = false;  ///< whether o has a state already; else o starts at 0
  /// A hint, which changes no bits, for heads whose K and V have equally many columns: bring rows into L1. The scores
  /// of a step bring its rows of V, and its product brings the rows of K for the next step. Lists of addresses then
  /// have kMostStep rows after the last.
  bool brings = false;
  /// Only for `attend_compressed`: the numbers that elements of K and V stand for, per row or per column (group 0 or
  /// 1).
  Antiquantization k_numbers = {}, v_numbers = {};
};

/// The heads that `attend` of few rows takes, among the heads that AttendArgs::Fits allows.
struct AttendedHeads {
  int64_t most_columns = 0;  ///< the most columns of a head; 0: `attend` takes no heads
  bool pairs = false;        ///< whether it multiplies pairs of bf16, for bf16 heads only; else f32
  bool any_float = false;    ///< if it multiplies f32: whether heads may be f16 and bf16, too
};

/// The facts that planning reads about the kernels of one strip width on one level. They come from a line of
/// kernels.inc, and any machine has the facts of any level.
struct StripFacts {
  const char* name = nullptr;  ///< for example "f32_8x32_avx512"
  Isa isa = Isa::kPortable;
  int64_t width = 0;       ///< lanes of its tiles
  int64_t rows = 0;        ///< query rows of a call: `width`, or the first few lanes; other lanes get scores of 0
  bool any_dtype = false;  ///< few rows: K and V may have every float type
  Operands operands = Operands::kF32;
  /// Pairs: the number of columns that lie together in a panel. A panel whose columns are a multiple of this number can
  /// be followed by another panel, and both are read as one panel.
  int64_t panel_group = 2;
  bool state_by_row = false;       ///< whether the output state is [row][dv], with the bits of [dv][lane]
  bool scores_by_address = false;  ///< whether scores and pair_rows also take listed rows
  bool in_place = false;           ///< pairs: whether scores and product take listed rows only, in place
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
  /// Returns whether `attend`, or for compressed types attend_compressed, takes heads of this type and these columns.
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

/// Passes over a tile of scores s[keys][width]. All strips and few rows have these passes. A pass with `row_max` raises
/// it by the scores that the pass writes: row_max[lane] = max(row_max[lane], s[.][lane]).
struct ScorePasses {
  /// s *= scale, or with softcap > 0: s = softcap * tanh(s * scale / softcap).
  void (*scale_scores)(float* s, int64_t keys, float scale, float softcap, float* row_max);
  /// s = pre * s + post * bias(lane)[key]. Lanes that are not in use may keep s.
  void (*add_bias)(float* s, int64_t keys, float pre, float post, const LaneRows& bias, float* row_max);
  /// s = pre * s - slope[lane] * f(|distance[lane] + key|), where f is the square root if `square_root` is set, else
  /// the identity.
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

/// These functions round a tile s[keys][width] to bf16. Only strips of pairs have them.
struct PairTiles {
  /// pairs[key / 2][lane] = the word of s[key][lane] and s[key + 1][lane]. `pairs` may be s.
  void (*pair_keys)(const float* s, int64_t keys, float* pairs) = nullptr;
  /// Turns words that pair_keys wrote back into s[key][lane], in place.
  void (*unpair_keys)(float* s, int64_t keys) = nullptr;
  /// rounded[key][lane] = s[key][lane] as bf16, which `outer` takes. `rounded` may overlap s if it does not begin after
  /// s.
  void (*pair_lanes)(const float* s, int64_t keys, float* rounded) = nullptr;
  /// Computes what backward_softmax computes, or with keep bits backward_softmax_dropout. P and ds_multiplier * dS are
  /// rounded to bf16, in the layouts that the products take.
  void (*backward_pairs)(const BackwardPairsArgs& x) = nullptr;
};

/// Loops that only kernels of few rows have. A loop is null on levels that lack it.
struct FewRowLoops {
  /// Computes scores that do not accumulate and, in the same loop, a product of rows of the same type. So memory is
  /// read at all times. Scores and product have the bits that they have when they are computed alone.
  void (*scores_beside)(const RowBlock& k, int64_t keys, const float* panel, int64_t d, float* s, float* row_max,
                        const ProductArgs& product) = nullptr;

  /// Computes scores, online softmax and product of keys that every row sees and whose scores no pass changes. It walks
  /// through the keys in steps of its own. StripFacts::attended says for which heads. With pairs of bf16 it rounds
  /// probabilities as strips of pairs do.
  void (*attend)(const AttendArgs& args) = nullptr;

  /// Does what attend does for compressed K and V, with heads that AttendArgs::Fits allows. Every level has this loop.
  void (*attend_compressed)(const AttendArgs& args) = nullptr;
};

/// The kernels of a strip or of few rows. Few rows have the panel [row][d] and the output state [row][dv]. A strip with
/// state_by_row has only the state [row][dv]. A panel of few rows serves keys of its queries' type and of f32. It takes
/// `width` floats per column, as a strip's panel does.
struct StripFunctions {
  /// panel[c][lane] = multiplier * row(lane)[c] for c < d; unused lanes are 0. With pairs, rows are bf16 and the
  /// multiplier is 1, 0 or -1. Strips with in_place choose the panel's order by d, so a panel is read with the d that
  /// it was packed with.
  void (*pack_queries)(const LaneRows& rows, int64_t d, float multiplier, float* panel);

  /// s[key][lane] (+)= sum_c k[key][c] * panel[c][lane]. With `row_max`, row_max[lane] = max(row_max[lane],
  /// s[.][lane]).
  void (*scores)(const RowBlock& k, int64_t keys, const float* panel, int64_t d, bool accumulate, float* s,
                 float* row_max);

  /// Online softmax of one key block, in base 2, with new_max = max(row_max, block_max). The scores become
  /// p = 2^(factor * (s - new_max)). It sets alpha = 2^(factor * (row_max - new_max)),
  /// row_sum = row_sum * alpha + sum p and row_max = new_max. A power below 2^-126 is 0, so that no product meets a
  /// subnormal. With pairs, p is written in the layout of pair_keys.
  void (*softmax)(float* s, int64_t keys, float factor, const float* block_max, float* row_max, float* row_sum,
                  float* alpha);
  /// Does what softmax does, and then p = kept ? p * multiplier : 0. row_sum adds p before dropout.
  void (*softmax_dropout)(const SoftmaxArgs& x, const KeepArgs& keep);

  /// o[c][lane] = alpha[lane] * o[c][lane] + sum_key v[key][c] * p[key][lane]. If alpha is null, o starts at 0.
  void (*product)(const RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha, float* o);
  /// Does what product does, but skips every key of a lane whose p is kMaskedProbability. p is an f32 tile whatever the
  /// operands. This is slow, and meant for blocks whose V is not finite.
  void (*product_exact)(const RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha, float* o);
  /// o[c][lane] = own_weight[lane] * o[c][lane] + from_weight[lane] * from[c][lane].
  void (*add_state)(const float* from, const float* from_weight, const float* own_weight, int64_t dv, float* o);

  /// rows(lane)[c] = o[c][lane] * multiplier[lane], rounded once. A lane whose `zero` is not 0 is written as 0.
  void (*write_output)(const float* o, int64_t dv, const float* multiplier, const int32_t* zero, void* const* rows,
                       DType dtype, int64_t count);

  // The next functions turn the backward's scores into probabilities. They run over s[keys][width] and dp[keys][width].

  /// s = p = 2^(factor * s - shift[lane]), which is 0 below 2^-126, and dp = ds = p * (dp - delta[lane]). Both are 0
  /// where s is kMaskedScore.
  void (*backward_softmax)(float* s, float* dp, int64_t keys, float factor, const float* shift, const float* delta);
  /// Works like backward_softmax with dropout: dp = ds = p * (dropout(dp) - delta[lane]), and then s = dropout(p).
  void (*backward_softmax_dropout)(float* s, float* dp, int64_t keys, float factor, const float* shift,
                                   const float* delta, const KeepArgs& keep);

  ScorePasses passes;
  PairTiles pairs = {};
  FewRowLoops few_rows = {};

  /// Computes a product, a softmax and scores of three different tiles in one loop. Any of the three may be null, and
  /// each has the bits that it has alone. Only the tile unit's strips have this loop, because their products leave the
  /// vector units free.
  void (*overlapped)(const ProductArgs* product, const SoftmaxArgs* softmax, const ScoreArgs* scores) = nullptr;
};

/// The kernels of one strip width on one level. The functions are null for a level that this CPU lacks.
struct StripKernels : StripFacts, StripFunctions {};

/// The arguments of `outer`, which computes c[key][column] (+)= sum over rows of a(key, row) * b[row][column]. Its sums
/// run along the lanes of several strips, in products of the backward. a is the strips' tile [strip][key][width], with
/// row = strip * width + lane.
struct OuterArgs {
  const float* a = nullptr;  ///< pairs: bf16 as pair_lanes writes it
  int64_t strip_stride = 0;  ///< floats from one strip's tile to the next
  int64_t width = 0;         ///< lanes of a strip; the last strip may be used in part only
  int64_t rows = 0;          ///< lanes in use of all strips together
  const float* b = nullptr;  ///< the panel of rows that pack_rows writes
  int64_t b_rows = 0;        ///< rows of the panel b
  int64_t b_first = 0;       ///< the panel's row that belongs to row 0
  int64_t keys = 0, columns = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;  ///< whether products are added to c; else c starts at 0
  /// If not null, it replaces c and c_stride: the address of each key's row of c. No two keys share a row.
  float* const* c_rows = nullptr;
};

/// The number of rows of the largest group that pair_rows of any level writes.
inline constexpr int64_t kMostPairGroup = 32;
/// The number of elements of the depth that one instruction over blocks of pairs adds. On such a level, pair_rows
/// writes groups of as many rows.
inline constexpr int64_t kPairBlockDepth = 4;
/// The words of a row of a tile of the tile unit.
inline constexpr int64_t kTileLanes = 16;

/// The facts that planning reads about the kernels that do not depend on a strip.
struct RowFacts {
  int64_t panel_lanes = 0;  ///< floats of a vector of the panels that pack_rows writes
  int64_t pair_group = 2;   ///< rows of a group of pair_rows

  /// Returns how many floats a row takes in a panel that pack_rows writes: `columns` rounded up to a full vector.
  [[nodiscard]] constexpr int64_t PanelColumns(int64_t columns) const { return RoundUp(columns, panel_lanes); }
  /// Returns `rows`, rounded up to a whole group.
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
  /// Packs rows for `outer`. Groups of columns follow each other, each [rows][columns of the group], padded with zeros.
  /// Without groups, rows of a power of two floats would fall on a few sets of L1 and drive each other out.
  /// With pairs, a group has CeilDiv(rows, 2) words of two rows per column, in the order that `outer` takes.
  void (*pack_rows)(const RowBlock& src, int64_t rows, int64_t columns, float* panel);
  bool (*all_finite)(const void* x, DType dtype, int64_t n);
  /// y = 2^x elementwise, with an error of at most 2 ulp. It is exactly 0 for -inf; subnormal results are rounded; a
  /// NaN is kept.
  void (*exp2)(const float* x, int64_t n, float* y);
  void (*outer)(const OuterArgs& args);
  /// Does what `outer` does, but skips every a that is kMaskedProbability. This is slow, and meant for blocks whose b
  /// is not finite.
  void (*outer_exact)(const OuterArgs& args);
  /// Returns the sum of a[i] * b[i] in f32, for rows of any float type.
  float (*dot)(const void* a, DType a_type, const void* b, DType b_type, int64_t n);
  /// dst[r][c] = the number for which the compressed src(r)[c] stands. It fetches ahead as `scores` does.
  void (*dequantize)(const RowBlock& src, int64_t rows, int64_t columns, const Antiquantization& by, float* dst,
                     int64_t dst_stride);
  /// Pairs only: writes words of src(r)[c] and src(r + 1)[c] for even r. The last group is filled up with rows of 0. A
  /// group of `pair_group` rows is [column][pair_group / 2] words, with dst_stride columns per group. Groups of two
  /// rows are words [row / 2][column].
  void (*pair_rows)(const RowBlock& src, int64_t rows, int64_t columns, float* dst, int64_t dst_stride) = nullptr;
  /// Optional: does what `outer` does for `args` and then for `then`. Both accumulate and differ in a and b alone, so c
  /// is loaded and stored only once.
  void (*outer_both)(const OuterArgs& args, const OuterArgs& then) = nullptr;
};

struct RowKernels : RowFacts, RowFunctions {};

inline constexpr int kMostStrips = 3, kMostFewRows = 4;  ///< lines of kernels.inc per level

/// The kernels of a level: strips from wide to narrow, and kernels of few rows from few to more rows.
struct KernelTable {
  Isa isa = Isa::kPortable;
  const StripKernels* strips = nullptr;
  int strip_count = 0;
  const StripKernels* few = nullptr;
  int few_count = 0;
  const RowKernels* rows = nullptr;
  /// The strips in the same order once more, with the output state by rows; null where the level has none.
  const StripKernels* row_state = nullptr;
  /// Pairs: the narrowest strip with its state by rows, which reads keys and values in place. Null where the level has
  /// none.
  const StripKernels* heads_in_place = nullptr;

  /// Returns whether the strips multiply bf16 pairs.
  [[nodiscard]] bool pairs() const { return strips[0].operands == Operands::kBF16Pairs; }
  [[nodiscard]] const StripKernels& widest() const { return strips[0]; }
  [[nodiscard]] const StripKernels& narrowest() const { return strips[strip_count - 1]; }
  /// Returns the strip for the first of `rows` rows. The rows are split into as few strips as the widest strip would
  /// need, of about equal width. 64 rows are two strips of 32 rather than a strip of 48 and one of 16, because the
  /// kernels of 16 are the slowest.
  [[nodiscard]] const StripKernels& ForRows(int64_t rows) const {
    const int64_t strips_needed = CeilDiv(rows, widest().width);
    const int64_t share = strips_needed == 0 ? 0 : CeilDiv(rows, strips_needed);
    int i = strip_count - 1;
    while (i > 0 && strips[i].width < share) --i;
    return strips[i];
  }
  /// Returns the same strip with its output state by rows, if the level has it, else `strip`.
  [[nodiscard]] const StripKernels& WithRowState(const StripKernels& strip) const {
    return row_state != nullptr ? row_state[&strip - strips] : strip;
  }
  /// Of the kernels that take at least `count` rows at once, returns those for the fewest rows, or null if there are
  /// none. Kernels of few rows add along the head in another order than strips. So a caller may choose them only by
  /// properties of the sequence itself.
  [[nodiscard]] const StripKernels* ForFewRows(int64_t count) const {
    for (int i = 0; i < few_count; ++i) {
      if (few[i].rows >= count) return &few[i];
    }
    return nullptr;
  }
};

/// Returns the kernels of a level for operands of a type. Operands of a type without kernels of its own are widened to
/// f32. A level that this CPU lacks has facts only, and its functions are null.
[[nodiscard]] const KernelTable& Kernels(Isa isa, DType dtype = DType::kF32);
/// Returns the portable level with OpenBLAS sgemm for the products. The results have the bits of OpenBLAS.
[[nodiscard]] const KernelTable& PortableBlasKernels();

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_TYPES_H_
