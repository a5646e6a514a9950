#include "npy/npy_open.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "npy/npy_file.h"

namespace fa::npy {
namespace {

std::string ReadDictionary(std::FILE* file) {
  unsigned char preamble[8];
  ReadExactly(file, preamble, sizeof(preamble), "magic bytes");
  if (std::memcmp(preamble, "\x93NUMPY", 6) != 0) throw FormatError("not a .npy file");
  const int major = preamble[6], minor = preamble[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw FormatError(".npy version " + std::to_string(major) + "." + std::to_string(minor) + ", want 1.0 to 3.0");
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  unsigned char length[4] = {};
  ReadExactly(file, length, length_bytes, "header");
  const size_t size = length[0] | length[1] << 8 | length[2] << 16 | static_cast<size_t>(length[3]) << 24;
  // The header of an array of numbers is far shorter than this. A larger length means that the file is damaged, so no
  // memory is allocated for it.
  constexpr size_t kMaxHeader = size_t{1} << 20;
  if (size > kMaxHeader) throw FormatError("malformed header, " + std::to_string(size) + " bytes long");
  std::string dictionary(size, ' ');
  ReadExactly(file, dictionary.data(), size, "header");
  return dictionary;
}

/// Refuses a regular file that is shorter than its header says, before memory is allocated.
void CheckLength(std::FILE* file, size_t data_bytes) {
  struct stat facts {};
  if (fstat(fileno(file), &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  const size_t have = static_cast<size_t>(facts.st_size - std::ftell(file));
  if (have < data_bytes) {
    throw FormatError("truncated: " + std::to_string(have) + " bytes of data, the header says " +
                      std::to_string(data_bytes));
  }
}

}  // namespace

File Open(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (!file) throw IoError(path + ": " + std::strerror(errno));
  return file;
}

void ReadExactly(std::FILE* file, void* into, size_t bytes, const char* what) {
  errno = 0;
  if (std::fread(into, 1, bytes, file) == bytes) return;
  if (std::ferror(file) != 0) throw IoError(std::strerror(errno));
  throw FormatError(std::string("truncated: it ends inside the ") + what);
}

Header ReadHeader(std::FILE* file) {
  Header header = ParseHeader(ReadDictionary(file));
  const std::optional<size_t> bytes = BytesOf(header.shape, header.type);
  if (!bytes) throw FormatError("shape " + ShapeText(header.shape) + " is too large");
  CheckLength(file, *bytes);
  return header;
}

// Goes through the elements of the result in order, and updates the offset in the source step by step.
Array ToRowMajor(const Array& source) {
  Array result(source.type(), source.shape());
  // If a size is 0, the others may be so large that strides overflow.
  if (result.size() == 0) return result;
  const size_t element = SizeOf(source.type());
  const std::vector<int64_t>& shape = source.shape();
  std::vector<int64_t> stride(shape.size()), index(shape.size(), 0);
  int64_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    stride[i] = step;
    step *= shape[i];
  }
  int64_t offset = 0;
  for (int64_t n = 0; n < result.size(); ++n) {
    std::memcpy(result.bytes() + static_cast<size_t>(n) * element,
                source.bytes() + static_cast<size_t>(offset) * element, element);
    for (size_t i = shape.size(); i-- > 0;) {
      offset += stride[i];
      if (++index[i] < shape[i]) break;
      offset -= stride[i] * shape[i];
      index[i] = 0;
    }
  }
  return result;
}

}  // namespace fa::npy
