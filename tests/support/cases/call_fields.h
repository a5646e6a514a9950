#ifndef FA_TESTS_SUPPORT_CALL_FIELDS_H_
#define FA_TESTS_SUPPORT_CALL_FIELDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fa/operators.h"
#include "fa/tensor.h"

namespace fa::test {

/// A field of an operator's arguments that holds a tensor.
class TensorField {
 public:
  TensorField(std::string name, TensorView* input) : name_(std::move(name)), input_(input) {}
  TensorField(std::string name, MutableTensorView* output) : name_(std::move(name)), output_(output) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool is_output() const { return output_ != nullptr; }
  [[nodiscard]] bool absent() const { return view().data == nullptr; }
  [[nodiscard]] TensorView view() const { return is_output() ? TensorView(*output_) : *input_; }
  void Set(const MutableTensorView& view) const {
    if (is_output()) {
      *output_ = view;
    } else {
      *input_ = view;
    }
  }

 private:
  std::string name_;
  TensorView* input_ = nullptr;
  MutableTensorView* output_ = nullptr;
};

/// A field that holds lengths or prefix sums.
struct LengthsField {
  std::string name;
  std::span<const int64_t>* values;
};

struct CallFields {
  std::vector<TensorField> tensors;
  std::vector<LengthsField> lengths;
};

/// Returns the fields of an operator's arguments. Lists, such as args->k of a decode, must span views that the caller
/// may change.
#define FA_FIELDS_OF(name, function, Args, Options, text) [[nodiscard]] CallFields FieldsOf(Args* args);
FA_OPERATORS(FA_FIELDS_OF)
#undef FA_FIELDS_OF

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CALL_FIELDS_H_
