#ifndef FA_TESTS_SUPPORT_RANDOM_VALUES_H_
#define FA_TESTS_SUPPORT_RANDOM_VALUES_H_

#include <cstdint>
#include <initializer_list>

namespace fa::test {

/// The names of a case's tensors. Each tensor draws other values by its name.
enum class Tag : uint8_t {
  kQ,
  kK,
  kV,
  kQRope,
  kKRope,
  kPse,
  kDenseMask,
  kDropMask,
  kSink,
  kSlopes,
  kDOut,
  kChoice,
  kLists,
  kQIndex,
  kKIndex,
  kWeights,
};

/// Returns 64 random bits that depend on the arguments alone. So the value of an element depends on its logical place,
/// and never on layout, batch size or order.
[[nodiscard]] uint64_t RandomBits(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// Returns a scaled sum of four uniform numbers, which has mean 0 and variance 1.
[[nodiscard]] double RandomNormal(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// Returns a uniform number in [0, 1).
[[nodiscard]] double RandomUniform(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);

/// Draws the normal numbers of places that differ in their last index alone. Each number takes a fifth of the work of
/// RandomNormal.
class RandomLine {
 public:
  /// @param line  all indices but the last one
  RandomLine(uint64_t seed, Tag tag, std::initializer_list<int64_t> line);
  [[nodiscard]] double Normal(int64_t last) const;
  [[nodiscard]] double Uniform(int64_t last) const;

 private:
  uint64_t state_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_RANDOM_VALUES_H_
