#ifndef FA_TESTS_SUPPORT_RANDOM_VALUES_H_
#define FA_TESTS_SUPPORT_RANDOM_VALUES_H_

#include <cstdint>
#include <initializer_list>

namespace fa::test {

/// Names of the tensors of a case, so that each tensor draws values of its own.
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

/// 64 random bits that depend on the arguments alone: the value of an element is a function of its logical place,
/// never of layout, batch size or order.
[[nodiscard]] uint64_t RandomBits(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// Mean 0, variance 1: the sum of four uniforms.
[[nodiscard]] double RandomNormal(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// Uniform in [0, 1).
[[nodiscard]] double RandomUniform(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);

/// The same numbers at places that differ in their last index alone, each for a fifth of the work.
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
