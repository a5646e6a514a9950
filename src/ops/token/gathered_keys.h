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

/// The rows of all keys of a call, which has one key head.
struct KeySources {
  layout::StoredRows k = {}, k_rope = {}, v = {};  ///< k_rope and v exist as GatherShape says
};

/// Where the keys of one token lie: in a batch element, or in a packed sequence.
struct KeyPlace {
  int64_t batch = 0;
  int64_t offset = 0;  ///< TND: row of the sequence's key 0

  [[nodiscard]] layout::HeadRows RowsOf(const layout::StoredRows& tensor) const {
    return tensor.Head(batch, 0, offset);
  }
};

/// The form of gathered rows for the kernels.
enum class KeyForm : uint8_t {
  kF32,      ///< widened to f32
  kNatural,  ///< unchanged, for kernels of any type and for f32
  kPairs,    ///< for kernels of bf16 pairs: K is unchanged, and V becomes pairs of rows
};
[[nodiscard]] KeyForm KeyFormOf(const core::kernels::StripKernels& kernels, DType dtype);

/// What is gathered per key.
struct GatherShape {
  DType dtype = DType::kF32;
  KeyForm form = KeyForm::kF32;
  int64_t d = 0, d_rope = 0;
  int64_t dv = 0;            ///< 0: no values
  bool shared_v = false;     ///< V is the first dv columns of K
  bool natural_v = false;    ///< pairs: V is unchanged, since the backward multiplies it as scores
  bool pair_k = false;       ///< pairs: K becomes pairs of rows too, for the backward's product with dS
  int64_t block = 0;         ///< keys gathered at a time, even; 0: rows are read in place
  int64_t values_ahead = 0;  ///< fetch_ahead for values that are read in place
  /// Pairs: whether scores read rows of K in place (StripKernels::scores_by_address). Then only rows whose product
  /// takes pairs are copied.
  bool by_address = false;

  [[nodiscard]] int64_t columns() const { return d + d_rope; }
};

/// Addresses of the rows of a token's keys, for kernels that read them in place.
struct KeyAddresses {
  /// Makes room for the rows of so many keys, and for rows that kernels fetch ahead.
  KeyAddresses(Carver& carver, const GatherShape& shape, int64_t max_keys);

  int64_t most;                   ///< most keys that there is room for
  const void **k, **k_rope, **v;  ///< v equals k if it is shared
};

/// One worker's memory for the rows of a block of keys.
struct GatherPanels {
  GatherPanels(Carver& carver, const GatherShape& shape);

  KeyAddresses addresses;  ///< with by_address
  std::byte* k;            ///< otherwise: rows of K, each followed by its rope part
  std::byte* v;            ///< rows of V, if they are no part of k
  float* v_pairs;
  float* k_pairs;
};

/// The rows of a block, beginning with key 0.
struct GatheredBlock {
  KeyRows rows;                          ///< k, k_rope (behind k) and v
  core::kernels::RowBlock k_of_product;  ///< [d + d_rope] columns, in the form for `product`; not with by_address
};

/// Copies the rows of selected keys next to each other, so that the kernels of the dense operators run on them. A copy
/// costs about a tenth of one strip's two products on the row, and the strips of all heads read it. A backward
/// multiplies a row five times, a forward only twice. By address, a forward of 32 heads takes 2 % less time, with 64
/// heads 1 % and with 128 heads 0.5 % (Zen 4). A backward takes the same time.
class GatheredKeys {
 public:
  /// How many keys ahead kernels that read rows in place fetch, as in a decode. With 16 they take as long.
  static constexpr int64_t kFetchAhead = 32;
  /// GatherShape::values_ahead: scores have fetched shared values already.
  static constexpr int64_t ValuesAhead(bool shared_v) { return shared_v ? 0 : kFetchAhead; }

  GatheredKeys(const core::kernels::RowKernels& kernels, const GatherShape& shape, const KeySources& sources)
      : kernels_(kernels), shape_(shape), sources_(sources) {}

  [[nodiscard]] const GatherShape& shape() const { return shape_; }

  /// Gathers at most shape().block keys.
  [[nodiscard]] GatheredBlock Gather(const KeyPlace& place, std::span<const int32_t> keys,
                                     const GatherPanels& panels) const;
  /// The rows of all of a token's keys in place, for kernels that take rows by address.
  [[nodiscard]] KeyRows InPlace(const KeyPlace& place, std::span<const int32_t> keys,
                                const KeyAddresses& addresses) const;
  /// Fetches the first rows, which kernels do not fetch ahead.
  void FetchFirst(const KeyRows& rows, int64_t count) const;
  /// Adds at most three runs per key.
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
