#ifndef FA_NPY_NPY_HEADER_H_
#define FA_NPY_NPY_HEADER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "npy/npy_array.h"

namespace fa::npy {

/// The dictionary of a .npy header.
struct Header {
  ElementType type = ElementType::kF32;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Reads the dictionary, a Python literal with the keys descr, fortran_order and shape, each once and in any order.
/// Throws FormatError with the reason: not such a dictionary, big endian, objects, records, an unknown type.
[[nodiscard]] Header ParseHeader(std::string_view text);

/// Magic, version, length and dictionary of a row-major array, padded to 64 bytes as by NumPy.
[[nodiscard]] std::string FormatHeader(ElementType type, std::span<const int64_t> shape);

}  // namespace fa::npy

#endif  // FA_NPY_NPY_HEADER_H_
