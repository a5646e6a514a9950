#ifndef FA_NPY_NPY_FILE_H_
#define FA_NPY_NPY_FILE_H_

#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>

#include "npy/npy_array.h"

namespace fa::npy {

/// The operating system refused to open, read or write a file. what() begins with the path.
class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The file exists, but is not an array that can be used. what() begins with the path.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads a .npy file of version 1.0 to 3.0 in C or Fortran order. The result is row-major. Big-endian, object and
/// record arrays and truncated files are refused. Bytes after the array are ignored, as NumPy does. Throws IoError,
/// FormatError, std::bad_alloc.
[[nodiscard]] Array Load(const std::string& path);

/// Writes version 1.0, row-major, directly to the file `path`. Throws IoError.
void Save(const std::string& path, ElementType type, std::span<const int64_t> shape, const void* data);
void Save(const std::string& path, const Array& array);
/// Writes version 1.0 to an open file, whose buffer may hold bytes back until it is flushed. Throws IoError with the
/// reason that the system gives.
void Write(std::FILE* file, const Array& array);

}  // namespace fa::npy

#endif  // FA_NPY_NPY_FILE_H_
