#ifndef FA_TESTS_ACLNN_SHAPED_FORWARD_H_
#define FA_TESTS_ACLNN_SHAPED_FORWARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"

namespace fa::test {

/// A forward call that is valid until a test changes it. The tensors may have any size, because the first phase reads
/// no contents.
class ShapedForward {
 public:
  struct Sizes {
    int64_t batch = 1, heads = 2, heads_kv = 2, sq = 1024, sk = 1024, d = 16, dv = 16;
  };

  ShapedForward() : ShapedForward(Sizes{}) {}
  explicit ShapedForward(const Sizes& sizes, const std::string& layout = "BNSD");

  /// Takes the lengths of the sequences, and passes their running sums.
  void SetLengths(std::vector<int64_t> q, std::vector<int64_t> kv);
  /// Adds the mask tensor that the mode wants.
  void SetMode(int64_t mode, int64_t pre = 2147483647, int64_t next = 2147483647);
  const aclIntArray* Array(const std::vector<int64_t>& values) { return handles_.Array(values); }
  aclTensor* Tensor(aclDataType dtype, const std::vector<int64_t>& shape);
  [[nodiscard]] Handles& handles() { return handles_; }

  /// Runs the first phase of version 3, or of version 5 for variable lengths if the layout is TND. Returns its code.
  [[nodiscard]] aclnnStatus Plan() const;
  [[nodiscard]] aclnnStatus Plan(ForwardVersion version) const;

  ForwardParameters p;

 private:
  Sizes sizes_;
  Handles handles_;
};

/// Expects 161002, and a message that contains `text`.
void ExpectInvalid(const ShapedForward& call, const std::string& text);
void ExpectAccepted(const ShapedForward& call);

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_SHAPED_FORWARD_H_
