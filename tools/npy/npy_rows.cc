// A range of rows of one dimension lies in runs of consecutive bytes: one run for each combination of indices of the
// earlier dimensions. A column-major array is treated as a row-major array with reversed dimensions.
#include "npy/npy_rows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "npy/npy_file.h"

namespace fa::npy {
namespace {

int64_t Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

int64_t RowsIn(std::span<const RowRange> rows) {
  int64_t count = 0;
  for (const RowRange& range : rows) count += range.end - range.begin;
  return count;
}

/// Calls move(offset in the larger array, offset in the smaller array, bytes) for every run. Offsets are in bytes.
template <typename Move>
void ForEachRun(const RowsOfArray& where, size_t element, const Move& move) {
  // If a size is 0, the others may be so large that products overflow.
  if (std::find(where.shape.begin(), where.shape.end(), 0) != where.shape.end()) return;
  const int64_t outer = Product(where.shape.first(where.axis)), of_axis = where.shape[where.axis];
  const int64_t row_bytes = Product(where.shape.subspan(where.axis + 1)) * static_cast<int64_t>(element);
  int64_t own = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const RowRange& range : where.rows) {
      const int64_t bytes = (range.end - range.begin) * row_bytes;
      if (bytes > 0) move((o * of_axis + range.begin) * row_bytes, own, bytes);
      own += bytes;
    }
  }
}

/// Calls `call` until all bytes are moved. One pread or pwrite moves at most 2 GiB, and may move less.
template <typename Byte, typename Call>
void InPieces(Byte* memory, int64_t bytes, int64_t at, const Call& call) {
  while (bytes > 0) {
    const ssize_t moved = call(memory, static_cast<size_t>(bytes), static_cast<off_t>(at));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) throw IoError(std::strerror(errno));
    if (moved == 0) throw IoError("the file has become shorter");
    memory += moved;
    bytes -= moved;
    at += moved;
  }
}

Array ReadRows(int descriptor, int64_t data_begin, const Header& header, size_t axis, std::span<const RowRange> rows) {
  std::vector<int64_t> own = header.shape;
  own[axis] = RowsIn(rows);
  const bool reversed = header.fortran_order && own.size() > 1;
  std::vector<int64_t> in_file = header.shape;
  if (reversed) {
    std::reverse(in_file.begin(), in_file.end());
    axis = in_file.size() - 1 - axis;
  }
  Array array(header.type, std::move(own));
  ForEachRun({.shape = in_file, .axis = axis, .rows = rows}, SizeOf(header.type),
             [&](int64_t file_at, int64_t own_at, int64_t bytes) {
               InPieces(
                   array.bytes() + own_at, bytes, data_begin + file_at,
                   [descriptor](std::byte* into, size_t size, off_t at) { return pread(descriptor, into, size, at); });
             });
  return reversed ? ToRowMajor(array) : std::move(array);
}

}  // namespace

RowReader::RowReader(const std::string& path) : path_(path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
    throw IoError(path + ": not a regular file, and rows are read by their place");
  }
  file_ = Open(path, "rb");
  try {
    header_ = ReadHeader(file_.get());
    data_begin_ = std::ftell(file_.get());
  } catch (const FormatError& error) {
    throw FormatError(path + ": " + error.what());
  } catch (const IoError& error) {
    throw IoError(path + ": " + error.what());
  }
}

Array RowReader::Rows(size_t axis, std::span<const RowRange> rows) const {
  try {
    return ReadRows(fileno(file_.get()), data_begin_, header_, axis, rows);
  } catch (const IoError& error) {
    throw IoError(path_ + ": " + error.what());
  }
}

Array RowReader::All() const {
  if (header_.shape.empty()) return Load(path_);
  const RowRange all{0, header_.shape[0]};
  return Rows(0, {&all, 1});
}

void WriteHeaderAndLength(std::FILE* file, ElementType type, std::span<const int64_t> shape) {
  const std::string header = FormatHeader(type, shape);
  const auto length = static_cast<off_t>(header.size() + BytesOf(shape, type).value());
  if (std::fwrite(header.data(), 1, header.size(), file) != header.size() || std::fflush(file) != 0 ||
      ftruncate(fileno(file), length) != 0) {
    throw IoError(std::strerror(errno));
  }
}

void TakeRows(const std::byte* whole, const RowsOfArray& where, Array& own) {
  ForEachRun(where, SizeOf(own.type()), [&](int64_t whole_at, int64_t own_at, int64_t bytes) {
    std::memcpy(own.bytes() + own_at, whole + whole_at, static_cast<size_t>(bytes));
  });
}

void PutRows(const Array& own, const RowsOfArray& where, std::byte* whole) {
  ForEachRun(where, SizeOf(own.type()), [&](int64_t whole_at, int64_t own_at, int64_t bytes) {
    std::memcpy(whole + whole_at, own.bytes() + own_at, static_cast<size_t>(bytes));
  });
}

void WriteRows(const std::string& path, const Array& array, const RowsOfArray& where) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) throw IoError(std::strerror(errno));
  const auto data_begin = static_cast<int64_t>(FormatHeader(array.type(), where.shape).size());
  try {
    ForEachRun(where, SizeOf(array.type()), [&](int64_t file_at, int64_t own_at, int64_t bytes) {
      InPieces(
          array.bytes() + own_at, bytes, data_begin + file_at,
          [descriptor](const std::byte* from, size_t size, off_t at) { return pwrite(descriptor, from, size, at); });
    });
  } catch (const IoError&) {
    close(descriptor);
    throw;
  }
  // If a disk on another machine is full, this may be noticed only when the file is closed.
  if (close(descriptor) != 0) throw IoError(std::strerror(errno));
}

}  // namespace fa::npy
