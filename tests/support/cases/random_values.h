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

/// 64 random bits that depend on the arguments alone. So the value of an element depends on its logical place, and
/// never on layout, batch size or order.
[[nodiscard]] uint64_t RandomBits(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// A number of mean 0 and variance 1, which is the sum of four uniforms.
[[nodiscard]] double RandomNormal(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);
/// A uniform number in [0, 1).
[[nodiscard]] double RandomUniform(uint64_t seed, Tag tag, std::initializer_list<int64_t> place);

/// The normal numbers of places that differ in their last index alone, each for a fifth of the work.
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
