// fa.PairMask: its makers take NumPy's and PyTorch's arrays.
#include "fa/pair_mask.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "fa/block_mask.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// The most bytes of the slabs that `from_slabs` asks for, unless a single row of tiles needs more.
constexpr int64_t kSlabBytes = int64_t{16} << 20;

/// One array argument, copied if the library cannot read it in place.
class OneArray {
 public:
  OneArray(const char* name, const nb::object& array) : arrays_(Named(name, array)) {
    view_ = arrays_.Statistics(name);
    if (!arrays_.incomplete()) return;
    Raise(arrays_.Complete());
    view_ = arrays_.Statistics(name);
  }
  [[nodiscard]] const TensorView& view() const { return view_; }

 private:
  static nb::dict Named(const char* name, const nb::object& array) {
    nb::dict arrays;
    arrays[name] = array;
    return arrays;
  }

  CallArrays arrays_;
  TensorView view_;
};

/// Calls `make` without the interpreter's lock. Returns its mask or raises its error.
template <typename Make>
PairMask Made(const Make& make) {
  Result<PairMask> mask = [&] {
    const nb::gil_scoped_release release;
    return make();
  }();
  Raise(mask.status());
  return std::move(*mask);
}

PairMask FromBool(const nb::object& mask, bool drops, Context* context) {
  const OneArray array("mask", mask);
  return Made([&] { return PairMask::FromBytes(array.view(), drops, context); });
}

std::pair<PairMask, bool> FromAdditive(const nb::object& scores, Context* context) {
  const OneArray array("scores", scores);
  bool adds = false;
  PairMask mask = Made([&] { return PairMask::FromAdditive(array.view(), &adds, context); });
  return {std::move(mask), adds};
}

PairMask FromIndices(const nb::object& indices, int64_t keys, Context* context) {
  const OneArray array("indices", indices);
  const Dims& shape = array.view().shape;
  const PairLists lists{.rows = shape.rank() < 2 ? 0 : shape[shape.rank() - 2], .keys = keys};
  return Made([&] { return PairMask::FromIndices(array.view(), lists, context); });
}

PairMask FromBlocks(const nb::object& blocks, int64_t rows, int64_t keys, std::pair<int64_t, int64_t> block_size,
                    Context* context) {
  const OneArray array("indices", blocks);
  const PairLists lists{.rows = rows, .keys = keys, .block_rows = block_size.first, .block_keys = block_size.second};
  return Made([&] { return PairMask::FromIndices(array.view(), lists, context); });
}

PairMask FromBlockMask(const nb::object& mask, int64_t rows, int64_t keys, std::pair<int64_t, int64_t> block_size,
                       Context* context) {
  const OneArray array("blocks", mask);
  const PairLists sizes{.rows = rows, .keys = keys, .block_rows = block_size.first, .block_keys = block_size.second};
  return Made([&] { return PairMaskFromBlocks(array.view(), sizes, context); });
}

PairMask FromBits(const nb::object& words, int64_t keys, Context* context) {
  const OneArray array("words", words);
  return Made([&] { return PairMask::FromBits(array.view(), keys, context); });
}

/// Broadcasts a slab [rows, Sk] or [B|1, H|1, rows, Sk] to `shape`. Raises ValueError for any other shape.
TensorView Spread(const TensorView& slab, const Dims& shape) {
  const int rank = slab.shape.rank(), missing = 4 - rank;
  TensorView view{slab.data, slab.dtype, shape, {0, 0, 0, 0}};
  bool fits = rank == 2 || rank == 4;
  for (int i = 0; fits && i < rank; ++i) {
    const bool whole = slab.shape[i] == shape[i + missing];
    fits = whole || (slab.shape[i] == 1 && i + missing < 2);
    if (whole) view.stride[i + missing] = slab.stride[i];
  }
  if (fits) return view;
  const auto text = [](const Dims& dims) {
    std::string all;
    for (const int64_t size : dims) all += (all.empty() ? "" : ",") + std::to_string(size);
    return "[" + all + "]";
  };
  Raise(Status::InvalidArgument(Arg("function").Says("returned shape " + text(slab.shape)) + ", want " + text(shape)));
  return view;
}

PairMask FromSlabs(const nb::callable& function, const std::vector<int64_t>& sizes, Context* context) {
  const Dims shape{std::span(sizes)};
  auto builder = PairMaskBuilder::Make(shape);
  Raise(builder.status());
  const int64_t row_bytes = std::max<int64_t>(shape[0] * shape[1] * shape[3], 1);
  const int64_t step = std::max<int64_t>(kSlabBytes / row_bytes / PairMask::kTile, 1) * PairMask::kTile;
  for (int64_t row = 0; row < shape[2]; row += step) {
    const int64_t end = std::min(row + step, shape[2]);
    const nb::object slab = nb::cast<nb::object>(function(row, end));
    const OneArray array("mask", slab);
    const TensorView view = Spread(array.view(), {shape[0], shape[1], end - row, shape[3]});
    RunUnlocked([&] { return builder->Add(0, 0, row, view, /*drops=*/false, context); });
  }
  auto mask = builder->Finish();
  Raise(mask.status());
  return std::move(*mask);
}

nb::tuple ShapeOf(const PairMask& mask) {
  nb::list sizes;
  for (const int64_t size : mask.shape()) sizes.append(size);
  return nb::tuple(sizes);
}

std::tuple<int64_t, int64_t, int64_t> TilesOf(const PairMask& mask) {
  const PairTileCounts tiles = mask.tiles();
  return {tiles.empty, tiles.full, tiles.partial};
}

std::string TextOf(const PairMask& mask) {
  const PairTileCounts tiles = mask.tiles();
  return "PairMask(shape=" + nb::cast<std::string>(nb::repr(ShapeOf(mask))) +
         ", tiles: " + std::to_string(tiles.empty) + " empty, " + std::to_string(tiles.full) + " full, " +
         std::to_string(tiles.partial) + " partial, " + std::to_string(mask.bytes()) + " bytes)";
}

/// Returns the mask itself as its copy, because masks are immutable.
nb::object Itself(const nb::object& self) { return self; }

/// Describes a mask to pickle as a call of `from_bits`.
nb::tuple ReducedToBits(const nb::object& self) {
  const PairMask& mask = nb::cast<const PairMask&>(self);
  const Dims shape = mask.shape();
  const int64_t words = (shape[3] + 63) / 64;
  std::string bits(static_cast<size_t>(shape[0] * shape[1] * shape[2] * words) * sizeof(uint64_t), '\0');
  {
    const nb::gil_scoped_release release;
    char* to = bits.data();
    for (int64_t plane_row = 0; plane_row < shape[0] * shape[1] * shape[2]; ++plane_row) {
      const int64_t row = plane_row % shape[2], plane = plane_row / shape[2];
      for (int64_t word = 0; word < words; ++word, to += sizeof(uint64_t)) {
        uint64_t value = 0;
        for (int64_t key = word * 64; key < std::min(word * 64 + 64, shape[3]); ++key) {
          value |= uint64_t{mask.keeps(plane / shape[1], plane % shape[1], row, key)} << (key % 64);
        }
        std::memcpy(to, &value, sizeof(value));
      }
    }
  }
  const nb::object numpy = nb::module_::import_("numpy");
  const nb::object flat = numpy.attr("frombuffer")(nb::bytes(bits.data(), bits.size()), "int64");
  const nb::object array = flat.attr("reshape")(nb::make_tuple(shape[0], shape[1], shape[2], words));
  return nb::make_tuple(self.type().attr("from_bits"), nb::make_tuple(array, shape[3]));
}

}  // namespace

void BindPairMask(nb::module_& module) {
  nb::class_<PairMask>(
      module, "PairMask",
      "A mask with one decision per pair of a query row and a key, made once for many calls.\n\n"
      "It is a map of tiles of 128 rows and 128 keys, which are empty, full, or have one bit per pair. Functions take "
      "it as\n`dense_mask` (fa.torch: as `attn_mask`) together with a rule. Sources are arrays [Sq, Sk] or "
      "[B|1, N|Nkv|1, Sq, Sk].\nThe object does not change, keeps no reference to its source, and can be pickled and "
      "copied.")
      .def_static(
          "from_bool", &FromBool, "mask"_a, nb::kw_only(), "drops"_a = false, "context"_a = nb::none(),
          "From bool, uint8 or int8: a value other than 0 keeps its pair. With drops=True it drops its pair, as "
          "in\n`dense_mask`.")
      .def_static(
          "from_additive", &FromAdditive, "scores"_a, nb::kw_only(), "context"_a = nb::none(),
          "From numbers that are added to scores. Numbers at or below half of the least finite number of their "
          "type drop\ntheir pairs. Returns (mask, adds). If `adds`, some kept number is not 0, so the call needs "
          "the array as a bias too.")
      .def_static("from_indices", &FromIndices, "indices"_a, "keys"_a, nb::kw_only(), "context"_a = nb::none(),
                  "From lists of keys per row, int32 or int64 [.., Sq, K]. Negative entries name no key.")
      .def_static("from_blocks", &FromBlocks, "blocks"_a, "rows"_a, "keys"_a, "block_size"_a, nb::kw_only(),
                  "context"_a = nb::none(),
                  "From lists of blocks of keys per block of rows, int32 or int64 [.., lists, K]. block_size is "
                  "(rows, keys) of a\nblock. Negative entries name no block.")
      .def_static(
          "from_block_mask", &FromBlockMask, "blocks"_a, "rows"_a, "keys"_a, "block_size"_a, nb::kw_only(),
          "context"_a = nb::none(),
          "From bool, uint8 or int8 [.., ceil(rows / block rows), ceil(keys / block keys)]: a value other than 0 "
          "keeps its\nblock. block_size is (rows, keys) of a block.")
      .def_static("from_bits", &FromBits, "words"_a, "keys"_a, nb::kw_only(), "context"_a = nb::none(),
                  "From int64 [.., Sq, ceil(keys / 64)]: key j is kept if bit j % 64 of word j // 64 is set.")
      .def_static("from_slabs", &FromSlabs, "function"_a, "shape"_a, nb::kw_only(), "context"_a = nb::none(),
                  "From function(row_begin, row_end) -> bool [row_end - row_begin, Sk] or [B|1, H|1, .., Sk], True = "
                  "keep. `shape` is\n(B|1, H, Sq, Sk). The function is called for slabs of rows, one after the other.")
      .def_prop_ro("shape", &ShapeOf, "(B|1, N|Nkv|1, Sq, Sk).")
      .def_prop_ro("tiles", &TilesOf, "The numbers of empty, full and partial tiles.")
      .def_prop_ro("memory", &PairMask::bytes, "The bytes that the mask takes.")
      .def(
          "__and__",
          [](const PairMask& a, const PairMask& b) { return Made([&] { return PairMask::Intersection(a, b); }); },
          nb::is_operator(), "The pairs that both masks keep. A dimension of 1, except that of keys, stands for all.")
      .def("__reduce__", &ReducedToBits)
      .def("__copy__", &Itself)
      .def(
          "__deepcopy__", [](const nb::object& self, nb::handle) { return Itself(self); }, "memo"_a)
      .def("__repr__", &TextOf);
}

}  // namespace fa::python
