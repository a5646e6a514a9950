#include "files/output_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "files/files_read.h"
#include "flags/failure.h"
#include "npy/npy_file.h"

namespace fa::tool {
namespace {

namespace fs = std::filesystem;

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw npy::IoError(path + ": " + std::strerror(errno));
}

}  // namespace

OutputFiles::~OutputFiles() {
  for (const File& file : files_) {
    if (file.written && !file.temporary.empty()) ::unlink(file.temporary.c_str());
  }
}

size_t OutputFiles::Add(const char* flag, const std::string& path) {
  if (path.empty()) throw UsageError(fmt::format("{}: an empty file name", flag));
  std::error_code error;
  const fs::path target = fs::weakly_canonical(fs::absolute(path), error);
  if (error) throw Failure(fmt::format("{}: {}: {}", flag, path, error.message()));
  const fs::path folder = target.parent_path();
  const fs::file_status status = fs::status(target, error);
  File file;
  file.flag = flag;
  file.path = path;
  file.target = target.string();
  if (fs::is_directory(status)) throw Failure(fmt::format("{}: {}: is a directory", flag, path));
  if (const char* input = FlagThatRead(file.target)) {
    throw UsageError(fmt::format("{}: {}: is the file of {}", flag, path, input));
  }
  const bool in_place = fs::exists(status) && !fs::is_regular_file(status);
  if (!in_place) {
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
      throw Failure(fmt::format("{}: {}: {}", flag, path, std::strerror(errno)));
    }
    file.temporary = fmt::format("{}.{}-{}.part", file.target, ::getpid(), files_.size());
    for (const File& other : files_) {
      if (other.target == file.target) throw UsageError(fmt::format("{} and {} name one file", other.flag, flag));
    }
  }
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

void OutputFiles::Write(const File& file) {
  const std::string& destination = file.temporary.empty() ? file.target : file.temporary;
  try {
    if (file.array != nullptr) npy::Save(destination, *file.array);
    if (file.text != nullptr) WriteText(destination, *file.text);
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}", file.flag, error.what()));
  }
}

void OutputFiles::Commit() {
  for (File& file : files_) {
    file.written = true;
    Write(file);
  }
  for (File& file : files_) {
    if (file.temporary.empty()) continue;
    if (::rename(file.temporary.c_str(), file.target.c_str()) != 0) {
      throw Failure(fmt::format("{}: {}: {}", file.flag, file.path, std::strerror(errno)));
    }
    file.written = false;
  }
}

}  // namespace fa::tool
