#include "files/output_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "files/files_read.h"
#include "flags/failure.h"
#include "npy/npy_file.h"

namespace fa::tool {
namespace {

namespace fs = std::filesystem;

/// Returns the path with its symbolic links resolved. A link may name a file that does not exist yet.
fs::path Resolved(const std::string& path, std::error_code& error) {
  constexpr int kMostLinks = 40;  // the limit of Linux on the symbolic links in a path
  fs::path target = fs::absolute(path);
  for (int links = 0; links < kMostLinks; ++links) {
    if (!fs::is_symlink(fs::symlink_status(target, error)) || fs::exists(target, error) || error) break;
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  return fs::weakly_canonical(target, error);
}

}  // namespace

size_t OutputFiles::Add(const char* flag, const std::string& path) {
  if (path.empty()) throw UsageError(fmt::format("{}: an empty file name", flag));
  std::error_code error;
  const fs::path target = Resolved(path, error);
  if (error) throw Failure(fmt::format("{}: {}: {}", flag, path, error.message()));
  const fs::path folder = target.parent_path();
  const fs::file_status status = fs::status(target, error);
  File& file = files_.emplace_back();
  file.flag = flag;
  file.path = path;
  file.target = target.string();
  if (fs::is_directory(status)) throw Failure(fmt::format("{}: {}: is a directory", flag, path));
  if (const char* input = FlagThatRead(file.target)) {
    throw UsageError(fmt::format("{}: {}: is the file of {}", flag, path, input));
  }
  file.in_place = fs::exists(status) && !fs::is_regular_file(status);
  if (!file.in_place) {
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
      throw Failure(fmt::format("{}: {}: {}", flag, path, std::strerror(errno)));
    }
    for (const File& other : files_) {
      if (&other != &file && other.target == file.target)
        throw UsageError(fmt::format("{} and {} name one file", other.flag, flag));
    }
  }
  return files_.size() - 1;
}

void OutputFiles::WriteTo(std::FILE* stream, const File& file) {
  if (file.array != nullptr) npy::Write(stream, *file.array);
  if (file.text == nullptr || std::fwrite(file.text->data(), 1, file.text->size(), stream) == file.text->size()) return;
  throw npy::IoError(std::strerror(errno));
}

void OutputFiles::Write(File& file) {
  if (!file.in_place) {
    WriteTo(file.staged.emplace(file.target).stream(), file);
    file.staged->Finish();
    return;
  }
  std::FILE* const stream = std::fopen(file.target.c_str(), "wb");
  if (stream == nullptr) throw npy::IoError(std::strerror(errno));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closed_on_failure(stream, std::fclose);
  WriteTo(stream, file);
  // If the disk is full, this may be noticed only when the stream is flushed.
  if (std::fflush(stream) != 0) throw npy::IoError(std::strerror(errno));
}

void OutputFiles::Commit() {
  File* current = nullptr;
  try {
    for (File& file : files_) Write(*(current = &file));
    const PublishedTogether together;
    for (File& file : files_) {
      if (file.staged) (current = &file)->staged->Publish();
    }
  } catch (const npy::IoError& error) {
    throw Failure(fmt::format("{}: {}: {}", current->flag, current->path, error.what()));
  }
}

}  // namespace fa::tool
