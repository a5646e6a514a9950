#ifndef FA_NPY_NPY_ROWS_H_
#define FA_NPY_NPY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "npy/npy_array.h"
#include "npy/npy_header.h"
#include "npy/npy_open.h"

namespace fa::npy {

/// The rows [begin, end) of one dimension of an array.
struct RowRange {
  int64_t begin = 0, end = 0;
};

/// A .npy file of which only some rows of one dimension are read. The functions throw what Load throws.
class RowReader {
 public:
  /// Reads the header. The file must be regular.
  explicit RowReader(const std::string& path);

  [[nodiscard]] ElementType type() const { return header_.type; }
  [[nodiscard]] const std::vector<int64_t>& shape() const { return header_.shape; }
  /// Reads and returns the rows of dimension `axis`, one range after another. Nothing else is read.
  [[nodiscard]] Array Rows(size_t axis, std::span<const RowRange> rows) const;
  [[nodiscard]] Array All() const;

 private:
  std::string path_;
  File file_;
  Header header_;
  int64_t data_begin_ = 0;
};

/// Writes the header, and makes the file as long as it must be for WriteRows. Throws IoError with the reason that the
/// system gives.
void WriteHeaderAndLength(std::FILE* file, ElementType type, std::span<const int64_t> shape);

/// The rows of a larger array that a smaller array holds. The larger array lies in a file or in memory.
struct RowsOfArray {
  std::span<const int64_t> shape;  ///< shape of the larger array
  size_t axis = 0;
  std::span<const RowRange> rows;  ///< rows of the smaller array, one range after another
};
/// TakeRows copies the rows that `where` describes from the row-major array at `whole` to `own`. PutRows copies the
/// rows back.
void TakeRows(const std::byte* whole, const RowsOfArray& where, Array& own);
void PutRows(const Array& own, const RowsOfArray& where, std::byte* whole);
/// Writes rows, and nothing else, into a file that WriteHeaderAndLength made. Throws IoError with the reason that the
/// system gives.
void WriteRows(const std::string& path, const Array& array, const RowsOfArray& where);

}  // namespace fa::npy

#endif  // FA_NPY_NPY_ROWS_H_
