#ifndef FA_NPY_NPY_HEADER_H_
#define FA_NPY_NPY_HEADER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "npy/npy_array.h"

namespace fa::npy {

/// The contents of a .npy header's dictionary.
struct Header {
  ElementType type = ElementType::kF32;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the dictionary: a Python literal with the keys descr, fortran_order and shape, each once, in any order. Throws
/// FormatError with the reason if the text is no such dictionary, or if the type is big-endian, object, record or
/// unknown.
[[nodiscard]] Header ParseHeader(std::string_view text);

/// Returns magic, version, length and dictionary of a row-major array, padded to a multiple of 64 bytes as NumPy does.
[[nodiscard]] std::string FormatHeader(ElementType type, std::span<const int64_t> shape);

}  // namespace fa::npy

#endif  // FA_NPY_NPY_HEADER_H_
