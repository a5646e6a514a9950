#ifndef FA_OPS_GATHERED_KEYS_H_
#define FA_OPS_GATHERED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "layout/stored_rows.h"
#include "ops/plan/carver.h"
#include "ops/tile/fetch_runs.h"
#include "ops/tile/key_rows.h"

namespace fa::ops {

/// Where the rows of all keys of a call lie, of one key head.
struct KeySources {
  layout::StoredRows k = {}, k_rope = {}, v = {};  ///< k_rope and v as GatherShape has them
};

/// The keys of one token: those of a batch element or packed sequence.
struct KeyPlace {
  int64_t batch = 0;
  int64_t offset = 0;  ///< TND: row of the sequence's key 0

  [[nodiscard]] layout::HeadRows RowsOf(const layout::StoredRows& tensor) const {
    return tensor.Head(batch, 0, offset);
  }
};

/// The form in which the kernels take gathered rows.
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
  int64_t dv = 0;            ///< 0: no values
  bool shared_v = false;     ///< V is the first dv columns of K
  bool natural_v = false;    ///< pairs: V as it is (the backward multiplies it as scores)
  bool pair_k = false;       ///< pairs: K in pairs of rows too (the backward's product with dS)
  int64_t block = 0;         ///< keys gathered at a time, even; 0: none, rows are read in place
  int64_t values_ahead = 0;  ///< fetch_ahead of values that are read in place
  /// Pairs: scores read rows of K where they are (StripKernels::scores_by_address), so that only rows whose product
  /// takes pairs are laid anew.
  bool by_address = false;

  [[nodiscard]] int64_t columns() const { return d + d_rope; }
};

/// Where the rows of a token's keys lie: for kernels that take them in place.
struct KeyAddresses {
  /// Room for the rows of so many keys, and for those that kernels fetch ahead.
  KeyAddresses(Carver& carver, const GatherShape& shape, int64_t max_keys);

  int64_t most;                   ///< keys that there is room for
  const void **k, **k_rope, **v;  ///< v: k where it is shared
};

/// One worker's memory for the rows of a block of keys.
struct GatherPanels {
  GatherPanels(Carver& carver, const GatherShape& shape);

  KeyAddresses addresses;  ///< by_address
  std::byte* k;            ///< else: rows of K, each followed by its rope part
  std::byte* v;            ///< rows of V that are no part of k
  float* v_pairs;
  float* k_pairs;
};

/// Rows of a block, from key 0 on.
struct GatheredBlock {
  KeyRows rows;                          ///< k, k_rope (behind k) and v
  core::kernels::RowBlock k_of_product;  ///< [d + d_rope] columns, as the kernels' product takes them; not by_address
};

/// Copies the rows of selected keys next to each other, so that the kernels of the dense operators run on them. A copy
/// costs about a tenth of one strip's two products on the row, and it is read by the strips of all heads. A backward
/// multiplies it five times, a forward only twice: by address, one of 32 heads takes 2 per cent less time, of 64 heads
/// 1 and of 128 heads 0.5 (Zen 4), and a backward as much as before.
class GatheredKeys {
 public:
  /// Kernels that read rows in place are asked to fetch those of so many keys ahead, as a decode's do; 16 take as long,
  /// measured.
  static constexpr int64_t kFetchAhead = 32;
  /// GatherShape::values_ahead where scores have fetched shared values.
  static constexpr int64_t ValuesAhead(bool shared_v) { return shared_v ? 0 : kFetchAhead; }

  GatheredKeys(const core::kernels::RowKernels& kernels, const GatherShape& shape, const KeySources& sources)
      : kernels_(kernels), shape_(shape), sources_(sources) {}

  [[nodiscard]] const GatherShape& shape() const { return shape_; }

  /// At most shape().block keys.
  [[nodiscard]] GatheredBlock Gather(const KeyPlace& place, std::span<const int32_t> keys,
                                     const GatherPanels& panels) const;
  /// The rows of all of a token's keys where they are, for kernels that take them by address.
  [[nodiscard]] KeyRows InPlace(const KeyPlace& place, std::span<const int32_t> keys,
                                const KeyAddresses& addresses) const;
  /// Fetches the rows that come before those that kernels fetch ahead.
  void FetchFirst(const KeyRows& rows, int64_t count) const;
  /// At most three runs per key.
  void AddRows(const KeyPlace& place, std::span<const int32_t> keys, FetchRuns& runs) const;

 private:
  [[nodiscard]] GatheredBlock ByAddress(const KeyPlace& place, std::span<const int32_t> keys,
                                        const GatherPanels& panels) const;
  void Copy(const layout::StoredRows& tensor, int64_t columns, const KeyPlace& place, std::span<const int32_t> keys,
            std::byte* to, int64_t stride) const;

  const core::kernels::RowKernels& kernels_;
  GatherShape shape_;
  KeySources sources_;
};

}  // namespace fa::ops

#endif  // FA_OPS_GATHERED_KEYS_H_
