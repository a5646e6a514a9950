#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "fuzz/targets/targets.h"
#include "npy/npy_file.h"
#include "npy/npy_header.h"

namespace fa::test {
namespace {

/// A file that exists only in memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) { Require(descriptor_ >= 0, "memfd_create"); }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string Path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void Write(std::span<const uint8_t> bytes) const {
    Require(write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write");
  }

 private:
  int descriptor_;
};

}  // namespace

void FuzzNpy(std::span<const uint8_t> input) {
  try {
    (void)npy::ParseHeader({reinterpret_cast<const char*>(input.data()), input.size()});
  } catch (const npy::FormatError& error) {
    Require(error.what()[0] != '\0', "a reason");
  }
  const MemoryFile file;
  file.Write(input);
  try {
    const npy::Array array = npy::Load(file.Path());
    Require(array.size_bytes() <= input.size(), "no more than the file holds");
    const MemoryFile copy;
    npy::Save(copy.Path(), array);
    const npy::Array again = npy::Load(copy.Path());
    Require(again.type() == array.type() && again.shape() == array.shape(), "the same type and shape");
    Require(std::memcmp(again.bytes(), array.bytes(), array.size_bytes()) == 0, "the same bytes");
  } catch (const npy::FormatError& error) {
    Require(std::string_view(error.what()).starts_with(file.Path() + ": "), "a reason that names the file");
  }
}

}  // namespace fa::test
