#include "npy/npy_array.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

namespace fa::npy {
namespace {

constexpr size_t kLineBytes = 64, kHugePageBytes = size_t{2} << 20;

/// Allocates memory. Large arrays ask for huge pages, because reading a long array from small pages is slowed down by
/// address translation.
std::byte* Allocate(size_t bytes) {
  const bool huge = bytes >= 2 * kHugePageBytes;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePageBytes : kLineBytes, std::max<size_t>(bytes, 1)) != 0) {
    throw std::bad_alloc();
  }
  // The system may ignore the advice. The advice covers only whole huge pages, because the memory after the last one
  // may belong to something else.
  if (huge) madvise(memory, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

struct TypeFacts {
  ElementType type;
  const char* descr;
  const char* name;
  size_t size;
};

constexpr std::array<TypeFacts, 12> kTypes = {{
    {ElementType::kBool, "|b1", "bool", 1},
    {ElementType::kI8, "|i1", "int8", 1},
    {ElementType::kU8, "|u1", "uint8", 1},
    {ElementType::kI16, "<i2", "int16", 2},
    {ElementType::kU16, "<u2", "uint16", 2},
    {ElementType::kI32, "<i4", "int32", 4},
    {ElementType::kU32, "<u4", "uint32", 4},
    {ElementType::kI64, "<i8", "int64", 8},
    {ElementType::kU64, "<u8", "uint64", 8},
    {ElementType::kF16, "<f2", "float16", 2},
    {ElementType::kF32, "<f4", "float32", 4},
    {ElementType::kF64, "<f8", "float64", 8},
}};

const TypeFacts& Facts(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

size_t SizeOf(ElementType type) { return Facts(type).size; }
const char* Name(ElementType type) { return Facts(type).name; }
const char* Descr(ElementType type) { return Facts(type).descr; }

std::optional<ElementType> ParseDescr(const std::string& descr) {
  for (const TypeFacts& facts : kTypes) {
    if (descr == facts.descr) return facts.type;
    // One-byte elements have no byte order. NumPy writes '|' for them, and other programs write '<'.
    if (facts.size == 1 && descr == std::string("<") + (facts.descr + 1)) return facts.type;
  }
  return std::nullopt;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  if (shape.size() == 1) text += ",";
  return text + ")";
}

std::optional<size_t> BytesOf(std::span<const int64_t> shape, ElementType type) {
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; })) return std::nullopt;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  auto bytes = static_cast<int64_t>(SizeOf(type));
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return static_cast<size_t>(bytes);
}

Array::Array(ElementType type, std::vector<int64_t> shape) : type_(type), shape_(std::move(shape)) {
  const std::optional<size_t> bytes = BytesOf(shape_, type_);
  if (!bytes) throw std::bad_alloc();
  size_bytes_ = *bytes;
  memory_.reset(Allocate(size_bytes_));
}

void Array::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace fa::npy
