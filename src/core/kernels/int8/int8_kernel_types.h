#ifndef FA_CORE_KERNELS_INT8_KERNEL_TYPES_H_
#define FA_CORE_KERNELS_INT8_KERNEL_TYPES_H_

#include <cstdint>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "fa/context.h"

/// What the int8 kernels do. kernel_types.h explains strips and transposed tiles. Operands are *words*: one word is
/// `group` neighbouring elements, either four bytes or two 16-bit integers. Inner products of words are exact in int32.
/// Everything that is not exact is computed with separate additions and multiplications, in one order, so that all
/// levels give the same bits.
namespace fa::core::kernels {

/// The most keys that a product adds in int32: 2^16 keys * 2^7 * 2^7 still fits.
inline constexpr int64_t kInt8ProductKeys = int64_t{1} << 16;

/// What planning must know about the kernels of one strip width at one level. It comes from a line of kernels.inc and
/// is known on any machine.
struct Int8Facts {
  const char* name = nullptr;  ///< for example "i8_8x32_avx512_vnni"
  Isa isa = Isa::kPortable;
  int64_t width = 0;  ///< lanes; the level's StripKernels of this width do the passes over the scores
  int64_t group = 0;  ///< elements per word: 4 where the level multiplies bytes, 2 where it multiplies 16-bit integers
  int64_t columns = 0;  ///< columns per block of V's packed panel; 1 for the tile unit
};

struct Int8Functions {
  /// panel[word][lane] = a word of sign * row(lane), in the form that `scores` reads. sign is -1, 0 or 1.
  void (*pack_queries)(const LaneRows& rows, int64_t d, int sign, uint32_t* panel);

  /// s[key][lane] = sign * sum_c k[key][c] * q[lane][c] exactly, as f32. With `row_max`, row_max[lane] = max(row_max,
  /// s). `k` points at packed rows of `words` words each; the number of the first row is a multiple of 8. start[key] is
  /// the number to which a key's products are added.
  void (*scores)(const uint32_t* k, const int32_t* start, int64_t keys, int64_t words, const uint32_t* panel, float* s,
                 float* row_max);

  /// Computes p = 2^(factor * (s - row_max)) and row_sum = sum p. Overwrites s with p8 = min(rint(quant * p), limit).
  /// p8 lies in words of `group` keys (at some levels in pairs of words), and the last word is padded with 0. quant >=
  /// 0 and limit <= 128. A row_max of -inf counts as 0.
  void (*softmax)(float* s, int64_t keys, float factor, float quant, float limit, const float* row_max, float* row_sum);

  /// o[column][lane] = sum_key v[key][column] * p8[key][lane], over the first `keys` keys of the panel, where keys <=
  /// kInt8ProductKeys.
  /// @param v_stride  words from one block of columns to the next
  void (*product)(const uint32_t* v, int64_t v_stride, int64_t keys, const uint32_t* p, int64_t dv, int32_t* o);
};

/// Kernels of one strip width on one level. The functions are null for a level that this CPU lacks.
struct Int8Kernels : Int8Facts, Int8Functions {};

inline constexpr int kMostInt8Strips = 2;  ///< most lines of kernels.inc per level

/// How the output of an int8 call is quantized: x * scale + offset.
struct Quantization {
  const void* scale = nullptr;   ///< address of the scale of the row's first column
  const void* offset = nullptr;  ///< address of that column's offset; null: 0
  DType dtype = DType::kF32;     ///< type of scale and offset, f32 or bf16
  bool per_column = false;       ///< whether each column has its own scale and offset; else all columns share them
};

/// The int8 kernels that a level offers.
struct Int8Table {
  Isa isa = Isa::kPortable;
  const Int8Kernels* strips = nullptr;  ///< from wide to narrow
  int strip_count = 0;
  int64_t group = 0, columns = 0;  ///< group and columns of every strip

  /// Packs rows of K as words along d, padded with 0, in the order that the level's `scores` reads. The order is
  /// k[row][word], or k[row / 8][word][row % 8], or pairs of words of pairs of rows. With the last two orders the panel
  /// has room for whole groups of 8 rows. start[row] gets the number to which the products of that key are added. Parts
  /// of one panel may be packed in separate calls that begin at multiples of 8.
  void (*pack_keys)(const RowBlock& rows, int64_t count, int64_t d, int sign, uint32_t* k, int32_t* start) = nullptr;
  /// Packs V as panel[block][group of keys][column], in blocks of `columns` columns. Each element is a word with the
  /// column's values for the keys of the group. Words and blocks are padded with 0.
  /// Some levels store panel[block][pair of groups][column][group of the pair] instead, and fill up the last pair.
  /// @param v_stride  words from one block to the next
  void (*pack_values)(const RowBlock& rows, int64_t keys, int64_t dv, int64_t v_stride, uint32_t* panel) = nullptr;
  /// y = saturate(rint(x * scale + offset)). NaN becomes -128.
  void (*quantize)(const float* x, int64_t n, const Quantization& quantization, int8_t* y) = nullptr;

  [[nodiscard]] int64_t Words(int64_t elements) const { return CeilDiv(elements, group); }
  [[nodiscard]] int64_t PanelBlocks(int64_t dv) const { return CeilDiv(dv, columns); }
};

/// Returns the kernels for a level, which may be the kernels of a level below it. If this CPU lacks the level, the
/// functions are null.
[[nodiscard]] const Int8Table& Int8KernelsFor(Isa isa);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INT8_KERNEL_TYPES_H_
