// fa.Mask as a value in Python: masks have ==, hash and repr. Pickle stores a mask as a call that makes it.
#include "fa/mask.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

Mask MaskOfSparseMode(int64_t sparse_mode, int64_t pre, int64_t next, Lengths prefix, bool dense_mask) {
  auto mask = Mask::FromSparseMode(sparse_mode, pre, next, std::move(prefix), dense_mask);
  Raise(mask.status());
  return std::move(*mask);
}

using RowEnds = nb::ndarray<const int32_t, nb::ndim<1>, nb::device::cpu>;

Lengths ListOf(const RowEnds& ends) {
  Lengths list(ends.shape(0));
  for (size_t i = 0; i < list.size(); ++i) list[i] = ends.data()[static_cast<int64_t>(i) * ends.stride(0)];
  return list;
}

Mask MaskOfArrays(const RowEnds& row_begin, const RowEnds& row_end) {
  return Mask::Rows(ListOf(row_begin), ListOf(row_end));
}

/// A static function of fa.Mask, and the arguments with which it makes a mask equal to a given one.
struct Maker {
  const char* function;
  nb::tuple arguments;
};

Maker MakerOf(const Mask& mask) {
  if (mask.sparse_mode() >= 0) {
    // In sparse mode 0, a call with a dense mask has a band, and a call without a dense mask keeps all pairs.
    const bool dense_mask_given = mask.kind() == Mask::Kind::kBandTopLeft;
    return {"from_sparse_mode",
            nb::make_tuple(mask.sparse_mode(), mask.pre(), mask.next(), mask.prefix(), dense_mask_given)};
  }
  switch (mask.kind()) {
    case Mask::Kind::kCausal: return {"causal", nb::make_tuple()};
    case Mask::Kind::kCausalTopLeft: return {"causal_top_left", nb::make_tuple()};
    case Mask::Kind::kBand: return {"band", nb::make_tuple(mask.pre(), mask.next())};
    case Mask::Kind::kBandTopLeft: return {"band_top_left", nb::make_tuple(mask.pre(), mask.next())};
    case Mask::Kind::kPrefix: return {"prefix", nb::make_tuple(mask.prefix())};
    case Mask::Kind::kRows: return {"rows", nb::make_tuple(mask.row_begin(), mask.row_end())};
    default: return {"none", nb::make_tuple()};
  }
}

bool Equal(const Mask& a, const Mask& b) {
  const auto members = [](const Mask& mask) {
    return std::tuple(mask.kind(), mask.pre(), mask.next(), mask.sparse_mode(), mask.prefix(), mask.row_begin(),
                      mask.row_end());
  };
  return members(a) == members(b);
}

std::string Text(const Mask& mask) {
  const Maker maker = MakerOf(mask);
  std::string text;
  for (const nb::handle argument : maker.arguments) {
    text += (text.empty() ? "" : ", ") + nb::cast<std::string>(nb::repr(argument));
  }
  return std::string("Mask.") + maker.function + "(" + text + ")";
}

/// Describes a mask to pickle as a call of the static function that makes the mask.
nb::tuple Reduced(const nb::object& self) {
  const Maker maker = MakerOf(nb::cast<const Mask&>(self));
  const nb::object caller = nb::module_::import_("operator").attr("methodcaller");
  return nb::make_tuple(caller(maker.function, *maker.arguments), nb::make_tuple(self.type()));
}

}  // namespace

void BindMask(nb::module_& module) {
  nb::class_<Mask>(
      module, "Mask",
      "Which keys a query row keeps, as a rule. A value: masks made alike are equal, hash alike, and can be "
      "pickled and\ncopied.")
      .def_static("none", &Mask::None, "Every key.")
      .def_static("causal", &Mask::Causal, "j <= i + Sk - Sq: the last query sees every key.")
      .def_static("causal_top_left", &Mask::CausalTopLeft, "j <= i.")
      .def_static("band", &Mask::Band, "pre"_a, "next"_a, "i + Sk - Sq - pre <= j <= i + Sk - Sq + next.")
      .def_static("band_top_left", &Mask::BandTopLeft, "pre"_a, "next"_a, "i - pre <= j <= i + next.")
      .def_static("prefix", &Mask::Prefix, "prefix"_a, "j < prefix[b] or j <= i + Sk - Sq.")
      .def_static("rows", &MaskOfArrays, "row_begin"_a.noconvert(), "row_end"_a.noconvert(),
                  "As below, of arrays int32 [rows].")
      .def_static("rows", &Mask::Rows, "row_begin"_a, "row_end"_a,
                  "row_begin[i] <= j < row_end[i]: the keys of each row of a batch element, which holds for all, or of "
                  "all of\nthem in turn. From one row that keeps keys to the next neither may decrease.")
      .def_static("from_sparse_mode", &MaskOfSparseMode, "sparse_mode"_a, "pre_tokens"_a = Mask::kUnlimited,
                  "next_tokens"_a = Mask::kUnlimited, "prefix"_a = Lengths(), "dense_mask_given"_a = false,
                  "The device's modes 0..8, with the device's checks. ValueError for another mode.")
      .def("__eq__", &Equal, nb::is_operator())
      .def("__hash__", [](const Mask& mask) { return std::hash<std::string>{}(Text(mask)); })
      .def("__repr__", &Text)
      .def("__reduce__", &Reduced);
}

}  // namespace fa::python
