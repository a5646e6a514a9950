#include "files/input_files.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "files/files_read.h"
#include "flags/failure.h"
#include "flags/flag_values.h"
#include "npy/npy_file.h"

namespace fa::tool {

InputFiles::InputFiles(const std::string& dtype, Read read) : read_(read) {
  if (!dtype.empty()) dtype_ = ParseFloatType(dtype);
}

TensorView InputFiles::Load(const char* flag, const std::string& path) {
  if (path.empty()) return {};
  return read_ == Read::kHeaders ? Open(flag, path) : Keep(LoadTensor(flag, path, dtype_));
}

TensorView InputFiles::LoadFloats(const char* flag, const std::string& path, bool int8_too) {
  if (path.empty()) return {};
  if (read_ == Read::kAll) return Keep(LoadActivations(flag, path, dtype_, int8_too));
  const TensorView view = Open(flag, path);
  CheckActivations(flag, Opened(flag).file.type(), dtype_, int8_too);
  return view;
}

TensorView InputFiles::Keep(Tensor tensor) { return tensors_.emplace_back(std::move(tensor)).View(); }

TensorView InputFiles::Open(const char* flag, const std::string& path) {
  static const char present = 0;  // planning only asks whether a tensor is given, so any address will do
  NoteFileRead(flag, path);
  try {
    npy::RowReader file(path);
    const DType dtype = DTypeOf(flag, file.type(), dtype_);
    const Header& header = headers_.emplace_back(flag, std::move(file), dtype);
    return {&present, dtype, Dims(std::span(header.file.shape())), {}};
  } catch (const npy::FormatError& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}", flag, error.what()));
  }
}

const InputFiles::Header& InputFiles::Opened(const char* flag) const {
  for (const Header& header : headers_) {
    if (std::strcmp(header.flag, flag) == 0) return header;
  }
  throw Failure(fmt::format("{}: not opened", flag));
}

TensorView InputFiles::ReadRows(const char* flag, int axis, std::span<const npy::RowRange> rows) {
  const Header& header = Opened(flag);
  try {
    return Keep({header.file.Rows(static_cast<size_t>(axis), rows), header.dtype});
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}", flag, error.what()));
  }
}

TensorView InputFiles::ReadAll(const char* flag) {
  const Header& header = Opened(flag);
  try {
    return Keep({header.file.All(), header.dtype});
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}", flag, error.what()));
  }
}

}  // namespace fa::tool
