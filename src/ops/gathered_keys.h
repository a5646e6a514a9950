#ifndef FA_OPS_GATHERED_KEYS_H_
#define FA_OPS_GATHERED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "layout/rows.h"
#include "ops/carver.h"
#include "ops/key_rows.h"

namespace fa::ops {

/// A tensor of one key head: [B, S, 1, columns] or [T, 1, columns]; in pages, rows.batch is the stride of a page.
struct KeySide {
  const void* data = nullptr;
  layout::Rows rows;
};

/// Where the rows of all keys of a call lie.
struct KeySources {
  KeySide k, k_rope, v;                  ///< k_rope and v as GatherShape has them
  const int32_t* block_table = nullptr;  ///< checked; null: keys do not lie in pages
  int64_t table_row = 0;                 ///< entries of a batch element
  int64_t page_rows = 0;
};

/// The keys of one token: those of a batch element or packed sequence.
struct KeyPlace {
  int64_t batch = 0;
  int64_t offset = 0;  ///< TND: row of the sequence's key 0
};

/// How the kernels take gathered rows.
enum class KeyForm : uint8_t {
  kF32,      ///< widened
  kNatural,  ///< as they are: kernels of any type, and f32
  kPairs,    ///< kernels of bf16 pairs: K as it is, V in pairs of rows
};
[[nodiscard]] KeyForm KeyFormOf(const core::kernels::StripKernels& kernels, DType dtype);

/// What is gathered of a key.
struct GatherShape {
  DType dtype = DType::kF32;
  KeyForm form = KeyForm::kF32;
  int64_t d = 0, d_rope = 0;
  int64_t dv = 0;          ///< 0: no values
  bool shared_v = false;   ///< V is the first dv columns of K
  bool natural_v = false;  ///< pairs: V as it is (the backward multiplies it as scores)
  bool pair_k = false;     ///< pairs: K in pairs of rows too (the backward's product with dS)
  int64_t block = 0;       ///< keys gathered at a time, even

  [[nodiscard]] int64_t columns() const { return d + d_rope; }
};

/// One worker's memory for the rows of a block of keys.
struct GatherPanels {
  GatherPanels(Carver& carver, const GatherShape& shape);

  std::byte* k;  ///< rows of K, its rope part behind each
  std::byte* v;  ///< rows of V that are no part of k
  float* v_pairs;
  float* k_pairs;
};

/// Rows of a block, from key 0 on.
struct GatheredBlock {
  KeyRows rows;                          ///< k, k_rope (behind k) and v
  core::kernels::RowBlock k_of_product;  ///< [d + d_rope] columns, as the kernels' product takes them
};

/// Copies the rows of selected keys side by side, so that the kernels of the dense operators run on them. A copy costs
/// about a tenth of one strip's two products on the row, and it is read by the strips of all heads.
class GatheredKeys {
 public:
  GatheredKeys(const core::kernels::RowKernels& kernels, const GatherShape& shape, const KeySources& sources)
      : kernels_(kernels), shape_(shape), sources_(sources) {}

  [[nodiscard]] const GatherShape& shape() const { return shape_; }

  /// At most shape().block keys.
  [[nodiscard]] GatheredBlock Gather(const KeyPlace& place, std::span<const int32_t> keys,
                                     const GatherPanels& panels) const;

  /// Address of a key's row.
  [[nodiscard]] const std::byte* Row(const KeySide& side, const KeyPlace& place, int64_t key) const;

 private:
  friend class KeyFetch;

  void Copy(const KeySide& side, int64_t columns, const KeyPlace& place, std::span<const int32_t> keys, std::byte* to,
            int64_t stride) const;

  const core::kernels::RowKernels& kernels_;
  GatherShape shape_;
  KeySources sources_;
};

/// Fetches the rows of keys into L2, a few lines at a time between products: at once they would fill the queue of
/// outstanding misses and hold up what follows.
class KeyFetch {
 public:
  KeyFetch() = default;
  KeyFetch(const GatheredKeys& gathered, const KeyPlace& place, std::span<const int32_t> keys);

  [[nodiscard]] int64_t lines() const { return lines_; }  ///< of all keys, about
  void Fetch(int64_t lines);

 private:
  void OpenRow();

  const GatheredKeys* gathered_ = nullptr;
  KeyPlace place_;
  std::span<const int32_t> keys_;
  size_t key_ = 0;
  int side_ = 0;
  const std::byte *at_ = nullptr, *end_ = nullptr;
  int64_t lines_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_GATHERED_KEYS_H_
