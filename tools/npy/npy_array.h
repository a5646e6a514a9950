#ifndef FA_NPY_NPY_ARRAY_H_
#define FA_NPY_NPY_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fa::npy {

/// The element types that are read and written. All are little endian.
enum class ElementType : uint8_t { kBool, kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kF16, kF32, kF64 };

[[nodiscard]] size_t SizeOf(ElementType type);
/// Returns NumPy's name of the type: "float32".
[[nodiscard]] const char* Name(ElementType type);
/// Returns the type's descr, such as "<f4", which is its code in a file's header.
[[nodiscard]] const char* Descr(ElementType type);
/// Returns the type with this descr, or nothing if there is none.
[[nodiscard]] std::optional<ElementType> ParseDescr(const std::string& descr);

/// Returns the shape as NumPy prints it: "(2, 3)".
[[nodiscard]] std::string ShapeText(std::span<const int64_t> shape);
/// Returns the number of bytes of a dense array, or nothing if it does not fit into 63 bits or a size is negative.
[[nodiscard]] std::optional<size_t> BytesOf(std::span<const int64_t> shape, ElementType type);

/// A dense row-major array, which owns its memory. The memory is aligned to 64 bytes and not initialised. Large arrays
/// lie in huge pages if the system allows it.
class Array {
 public:
  Array() = default;
  /// Allocates an array. Throws std::bad_alloc, also if the number of bytes does not fit into 63 bits.
  Array(ElementType type, std::vector<int64_t> shape);

  [[nodiscard]] ElementType type() const { return type_; }
  [[nodiscard]] const std::vector<int64_t>& shape() const { return shape_; }
  [[nodiscard]] size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(size_bytes_ / SizeOf(type_)); }
  /// Returns the address of the elements. The address is not null, even if there are no elements.
  [[nodiscard]] std::byte* bytes() { return memory_.get(); }
  [[nodiscard]] const std::byte* bytes() const { return memory_.get(); }
  template <typename T>
  [[nodiscard]] std::span<T> as() {
    return {reinterpret_cast<T*>(memory_.get()), size_bytes_ / sizeof(T)};
  }
  template <typename T>
  [[nodiscard]] std::span<const T> as() const {
    return {reinterpret_cast<const T*>(memory_.get()), size_bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  ElementType type_ = ElementType::kF32;
  std::vector<int64_t> shape_;
  size_t size_bytes_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace fa::npy

#endif  // FA_NPY_NPY_ARRAY_H_
