#ifndef FA_TESTS_SUPPORT_GUARDED_BUFFER_H_
#define FA_TESTS_SUPPORT_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fa::test {

/// Where the bytes lie between the two unreadable pages around every buffer.
enum class Place : uint8_t {
  kInside,   ///< canaries lie on both sides
  kAtEnd,    ///< the byte after the last is unreadable
  kAtStart,  ///< the byte before the first is unreadable
};

/// Memory filled with 0xFF, which is NaN in every floating-point format and "drop" in a mask. Unreadable pages lie
/// before and after the memory. The bytes between these pages and the memory are canaries, also filled with 0xFF.
class GuardedBuffer {
 public:
  /// @param past_alignment  with kInside: distance of the first byte from a 64-byte boundary, in bytes
  explicit GuardedBuffer(size_t bytes, Place place = Place::kInside, size_t past_alignment = 0);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  /// Returns the bytes and the canaries around them.
  [[nodiscard]] std::span<std::byte> whole() const { return whole_; }

 private:
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::span<std::byte> whole_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_GUARDED_BUFFER_H_
