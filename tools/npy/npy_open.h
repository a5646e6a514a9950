#ifndef FA_NPY_NPY_OPEN_H_
#define FA_NPY_NPY_OPEN_H_

#include <cstdio>
#include <memory>
#include <string>

#include "npy/npy_array.h"
#include "npy/npy_header.h"

namespace fa::npy {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

/// Opens a file. Throws IoError, whose text begins with the path.
[[nodiscard]] File Open(const std::string& path, const char* mode);
/// Reads exactly `bytes` bytes. Errors call these bytes `what`. Throws IoError and FormatError, whose texts lack the
/// path.
void ReadExactly(std::FILE* file, void* into, size_t bytes, const char* what);
/// Reads a file's header, up to the data, and checks that the file is long enough for the data. Throws IoError and
/// FormatError, whose texts lack the path.
[[nodiscard]] Header ReadHeader(std::FILE* file);
/// Returns a column-major array as a row-major array.
[[nodiscard]] Array ToRowMajor(const Array& source);

}  // namespace fa::npy

#endif  // FA_NPY_NPY_OPEN_H_
