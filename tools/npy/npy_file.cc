#include "npy/npy_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "npy/npy_header.h"
#include "npy/npy_open.h"

namespace fa::npy {
namespace {

Array Read(std::FILE* file) {
  const Header header = ReadHeader(file);
  Array array(header.type, header.shape);
  ReadExactly(file, array.bytes(), array.size_bytes(), "data");
  return header.fortran_order && array.shape().size() > 1 ? ToRowMajor(array) : std::move(array);
}

void Write(std::FILE* file, ElementType type, std::span<const int64_t> shape, const void* data) {
  const std::string header = FormatHeader(type, shape);
  const size_t bytes = BytesOf(shape, type).value();
  errno = 0;
  if (std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
      std::fwrite(data, 1, bytes, file) == bytes) {
    return;
  }
  throw IoError(std::strerror(errno));
}

}  // namespace

Array Load(const std::string& path) {
  const File file = Open(path, "rb");
  try {
    return Read(file.get());
  } catch (const FormatError& error) {
    throw FormatError(path + ": " + error.what());
  } catch (const IoError& error) {
    throw IoError(path + ": " + error.what());
  }
}

void Write(std::FILE* file, const Array& array) { Write(file, array.type(), array.shape(), array.bytes()); }

void Save(const std::string& path, ElementType type, std::span<const int64_t> shape, const void* data) {
  File file = Open(path, "wb");
  try {
    Write(file.get(), type, shape, data);
    // Closing flushes the file. If the disk is full, this may be noticed only here.
    if (std::fclose(file.release()) != 0) throw IoError(std::strerror(errno));
  } catch (const IoError& error) {
    throw IoError(path + ": " + error.what());
  }
}

void Save(const std::string& path, const Array& array) { Save(path, array.type(), array.shape(), array.bytes()); }

}  // namespace fa::npy
