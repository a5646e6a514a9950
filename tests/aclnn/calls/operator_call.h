#ifndef FA_TESTS_ACLNN_OPERATOR_CALL_H_
#define FA_TESTS_ACLNN_OPERATOR_CALL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <ostream>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "fa/operators.h"

namespace fa::test {

/// One operator of every family. Calls of the kPacked families have layout TND, and statistics ordered by sequence
/// where an operator has statistics.
enum class Family : uint8_t {
#define FA_VALUE(name, function, args, options, text) k##name,
  FA_OPERATORS(FA_VALUE)
#undef FA_VALUE
      kForwardPacked,
  kBackwardPacked,
  kMergePacked,
};
[[nodiscard]] const std::vector<Family>& AllFamilies();
[[nodiscard]] const char* Name(Family family);
std::ostream& operator<<(std::ostream& os, Family family);

/// How the elements of a call's tensors lie. Tensors with kSpread have gaps, so the interface copies them through the
/// workspace.
enum class Spacing : uint8_t { kDense, kSpread };

/// False sizes: every dimension of size `size` claims to have the size `claimed`. The inputs of a call with false sizes
/// have strides of 0, the outputs have no memory, and only the first phase runs.
struct ClaimedSize {
  int64_t size = 0, claimed = 0;
};

/// A small valid call, made as a program makes it, with tensors that the object owns. The object frees everything,
/// whichever step fails.
class OperatorCall {
 public:
  struct Tensor {
    std::string name;  ///< the tensor's name in the interface
    bool output = false;
    aclDataType dtype = ACL_FLOAT;
    std::vector<int64_t> shape, stride;
    std::vector<std::byte> memory;
    const aclTensor* handle = nullptr;

    [[nodiscard]] void* data() { return memory.data(); }
    [[nodiscard]] int64_t elements() const;
  };

  /// Inputs are small values, and outputs are NaN. If memory is short, some descriptors are null, and the operator
  /// returns an error for them.
  explicit OperatorCall(Family family, Spacing spacing = Spacing::kDense) : OperatorCall(family, spacing, {}) {}
  OperatorCall(Family family, const ClaimedSize& claim) : OperatorCall(family, Spacing::kDense, claim) {}
  ~OperatorCall();
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  /// Runs the first phase.
  [[nodiscard]] aclnnStatus GetWorkspaceSize();
  /// Runs the first phase, and makes the workspace.
  [[nodiscard]] aclnnStatus Plan();
  /// Runs the second phase, in a workspace of this call.
  [[nodiscard]] aclnnStatus Start(aclrtStream stream);
  /// Runs both phases and synchronises. @return the first code that is not 0
  aclError Run(aclrtStream stream);

  /// Destroys the executor if it has not run.
  void Drop();
  /// Returns whether any tensor has a dimension whose size is replaced by the claimed one.
  [[nodiscard]] bool has_claim() const { return has_claim_; }

  /// Returns the tensors in the order in which aclSetTensorAddr counts them.
  [[nodiscard]] std::list<Tensor>& tensors() { return tensors_; }
  /// Returns the values of all outputs.
  [[nodiscard]] std::vector<std::byte> Results() const;
  void ForgetResults();
  [[nodiscard]] aclOpExecutor* executor() const { return executor_; }
  [[nodiscard]] std::vector<std::byte>& workspace() { return workspace_; }

 private:
  OperatorCall(Family family, Spacing spacing, const ClaimedSize& claim);
  const aclTensor* Add(const std::string& name, bool output, const std::vector<int64_t>& shape, aclDataType dtype);
  const aclTensor* In(const std::string& name, const std::vector<int64_t>& shape, aclDataType dtype = ACL_FLOAT) {
    return Add(name, false, shape, dtype);
  }
  const aclTensor* Out(const std::string& name, const std::vector<int64_t>& shape, aclDataType dtype = ACL_FLOAT) {
    return Add(name, true, shape, dtype);
  }
  const aclTensor* Indices(const char* name = "sparseIndices");
  const aclTensor* PrefixSums();
  /// Adds an int32 input whose elements are `values`.
  const aclTensor* Integers(const std::string& name, const std::vector<int64_t>& shape,
                            const std::vector<int32_t>& values);
  [[nodiscard]] const aclTensor* Handle(const char* name) const;
  void AddTensors();
  void AddForward(bool packed);
  void AddBackward(bool packed);
  void AddMerge(bool packed);
  void AddSparse();
  void AddSharedKv();
  void AddLoss();
  void AddMergeLse();
  void AddIndexScore();
  void AddScatter();
  void AddGather();
  [[nodiscard]] const aclTensor* Claimed(Tensor& tensor);

  Family family_;
  Spacing spacing_;
  ClaimedSize claim_;
  bool has_claim_ = false;
  std::list<Tensor> tensors_;
  aclIntArray *lengths_q_ = nullptr, *lengths_kv_ = nullptr;
  aclTensorList *keys_ = nullptr, *values_ = nullptr;
  uint64_t size_ = 0;
  aclOpExecutor* executor_ = nullptr;
  std::vector<std::byte> workspace_;
};

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_OPERATOR_CALL_H_
