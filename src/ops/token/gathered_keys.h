#ifndef FA_OPS_GATHERED_KEYS_H_
#define FA_OPS_GATHERED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "layout/stored_rows.h"
#include "ops/plan/carver.h"
#include "ops/tile/fetch_runs.h"
#include "ops/tile/key_rows.h"
#include "ops/token/quantized_rows.h"

namespace fa::ops {

/// The keys and values of a call that has one key head. The elements of quantised rows are bytes.
struct KeySources {
  layout::StoredRows k = {}, k_rope = {}, v = {};  ///< rows of the tensors; GatherShape says whether k_rope and v exist
  layout::StoredRows second = {};  ///< rows of K in a second tensor; only without k_rope, and if V is part of K
};

/// Where the keys of one query token lie: its batch element or its packed sequence.
struct KeyPlace {
  int64_t batch = 0;
  int64_t offset = 0;                                        ///< row of the sequence's key 0 for TND, else 0
  int64_t first_keys = std::numeric_limits<int64_t>::max();  ///< keys from this number on lie in the second tensor
  int64_t second_offset = 0;                                 ///< as `offset`, in the second tensor

  [[nodiscard]] layout::HeadRows RowsOf(const layout::StoredRows& tensor) const {
    return tensor.Head(batch, 0, offset);
  }
};

/// The rows of a sequence's keys in one tensor or in two tensors.
struct RowsInTensors {
  layout::HeadRows first, second = {};
  int64_t first_keys = std::numeric_limits<int64_t>::max();

  [[nodiscard]] DType dtype() const { return first.dtype; }
  [[nodiscard]] const std::byte* At(int64_t key) const {
    return key < first_keys ? first.At(key) : second.At(key - first_keys);
  }
};

/// How gathered rows are stored for the kernels.
enum class KeyForm : uint8_t {
  kF32,      ///< rows are widened to f32
  kNatural,  ///< rows are unchanged; for f32, and for kernels that read any type
  kPairs,    ///< K is unchanged and V becomes pairs of rows, for kernels of bf16 pairs
};
[[nodiscard]] KeyForm KeyFormOf(const core::kernels::StripKernels& kernels, DType dtype);
/// Returns the form of rows that are widened when they are gathered for queries of this type. bf16 stays bf16 if the
/// kernels read it, so that plain and quantised rows give the same bits. f16 becomes f32, which has room for large
/// scales.
[[nodiscard]] KeyForm WidenedFormOf(const core::kernels::StripKernels& kernels, DType dtype);

/// Which rows are gathered per key, and how they are stored.
struct GatherShape {
  DType dtype = DType::kF32;
  KeyForm form = KeyForm::kF32;
  int64_t d = 0, d_rope = 0;
  int64_t dv = 0;         ///< number of columns of V; 0 if there are no values
  bool shared_v = false;  ///< whether V is the first dv columns of K
  /// With KeyForm::kPairs: whether V stays unchanged, because the backward computes dP from V.
  bool natural_v = false;
  bool pair_k = false;       ///< with KeyForm::kPairs: whether K becomes pairs of rows too, for the product with dS
  int64_t block = 0;         ///< even number of keys that are gathered at a time; 0 if rows are read in place
  int64_t values_ahead = 0;  ///< for values that are read in place: how many rows ahead they are prefetched
  /// With KeyForm::kPairs: whether scores read rows of K in place (StripKernels::scores_by_address). Then only rows for
  /// products that take pairs are copied: V, and K for dS.
  bool by_address = false;
  /// How rows of K and V are stored if they are quantised. Quantised rows are widened when they are gathered. Then d is
  /// the width of a row, d_rope is 0, and `form` comes from WidenedFormOf.
  std::optional<QuantizedRow> quantized = {};
  /// With `quantized` and KeyForm::kPairs: a strip that rounds widened rows (WidenRow).
  const core::kernels::StripKernels* pairs = nullptr;
  /// With `quantized`: whether the kernels take rows only by address. Then gathered rows are passed as lists of
  /// addresses in the panels.
  bool listed = false;

  [[nodiscard]] int64_t columns() const { return d + d_rope; }
};

/// Addresses of the rows of a token's keys, for kernels that read them in place.
struct KeyAddresses {
  /// Makes room for the addresses of max_keys rows, and of the rows after them that kernels prefetch.
  KeyAddresses(Carver& carver, const GatherShape& shape, int64_t max_keys);

  int64_t most;                   ///< the most keys for which there is room
  const void **k, **k_rope, **v;  ///< v equals k if V is part of K
};

/// One worker's memory for the rows of a block of keys.
struct GatherPanels {
  GatherPanels(Carver& carver, const GatherShape& shape);

  KeyAddresses addresses;  ///< addresses of rows of K, only with by_address or `listed`
  std::byte* k;            ///< without by_address: rows of K, each followed by its rope part
  std::byte* v;            ///< rows of V, if they are no part of k
  float* v_pairs;
  float* k_pairs;
  float* widening;  ///< scratch of WidenRow, only for quantised rows
};

/// The gathered rows of a block. Row i belongs to the block's key i.
struct GatheredBlock {
  KeyRows rows;  ///< rows of K, each followed by its rope part unless by_address is set, and rows of V
  /// Rows of K, with d + d_rope columns, in the form that the kernels' `product` takes; unset with by_address.
  core::kernels::RowBlock k_of_product;
};

/// Copies the rows of selected keys next to each other, so that the kernels of the dense operators run on them. Copying
/// a row takes about a tenth of the time of one strip's two products with the row, and the strips of all heads use the
/// copy.
class GatheredKeys {
 public:
  /// Kernels that read rows in place prefetch the row that lies this many keys ahead. A distance of 16 keys is as fast.
  static constexpr int64_t kFetchAhead = 32;
  /// Returns GatherShape::values_ahead. The result is 0 for shared values, because computing the scores has already
  /// brought the values into the caches.
  static constexpr int64_t ValuesAhead(bool shared_v) { return shared_v ? 0 : kFetchAhead; }

  GatheredKeys(const core::kernels::RowKernels& kernels, const GatherShape& shape, const KeySources& sources)
      : kernels_(kernels), shape_(shape), sources_(sources) {}

  [[nodiscard]] const GatherShape& shape() const { return shape_; }

  /// Gathers the rows of at most shape().block keys.
  [[nodiscard]] GatheredBlock Gather(const KeyPlace& place, std::span<const int32_t> keys,
                                     const GatherPanels& panels) const;
  /// Returns the rows of all of a token's keys in place, for kernels that take rows by address.
  [[nodiscard]] KeyRows InPlace(const KeyPlace& place, std::span<const int32_t> keys,
                                const KeyAddresses& addresses) const;
  /// Prefetches the first rows: `count` rows, but at most kFetchAhead. Kernels prefetch the later rows while they
  /// read earlier rows.
  void FetchFirst(const KeyRows& rows, int64_t count) const;
  /// Adds the rows of the keys to `runs`, at most three runs per key.
  void AddRows(const KeyPlace& place, std::span<const int32_t> keys, FetchRuns& runs) const;

 private:
  [[nodiscard]] GatheredBlock ByAddress(const KeyPlace& place, std::span<const int32_t> keys,
                                        const GatherPanels& panels) const;
  void Copy(const RowsInTensors& rows, int64_t columns, std::span<const int32_t> keys, const GatherPanels& panels,
            std::byte* to, int64_t stride) const;
  /// Returns the rows of K.
  [[nodiscard]] RowsInTensors KeysAt(const KeyPlace& place) const {
    return {place.RowsOf(sources_.k), sources_.second.Head(place.batch, 0, place.second_offset), place.first_keys};
  }

  const core::kernels::RowKernels& kernels_;
  GatherShape shape_;
  KeySources sources_;
};

}  // namespace fa::ops

#endif  // FA_OPS_GATHERED_KEYS_H_
