#ifndef FA_TESTS_FUZZ_MISTAKES_H_
#define FA_TESTS_FUZZ_MISTAKES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fuzz/calls/fuzz_call.h"
#include "support/cases/random_token_case.h"

namespace fa::test {

/// A change of one argument of a valid call. The destructor undoes the change.
class Mistake {
 public:
  /// Changes one argument. If the call is then still valid, it reads and writes only memory of its tensors.
  Mistake(FuzzCall* call, RandomChoices* random);
  ~Mistake();
  Mistake(const Mistake&) = delete;
  Mistake& operator=(const Mistake&) = delete;

  /// Returns the change in words, such as "k.shape[1]=7, was 8".
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  void OfATensor(const TensorField& field, const std::vector<TensorField>& all, RandomChoices* random);
  void OfLengths(const LengthsField& field, RandomChoices* random);
  void OfAnEntry(const TensorField& field, RandomChoices* random);

  FuzzCall* call_;
  std::string what_;
  std::vector<int64_t> lengths_;
  std::function<void()> undo_;
};

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_MISTAKES_H_
