#ifndef FA_TESTS_SUPPORT_CALL_FIELDS_H_
#define FA_TESTS_SUPPORT_CALL_FIELDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/merge.h"
#include "fa/prompt_flash_attention.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "fa/tensor.h"

namespace fa::test {

/// A field of some operator's arguments that holds a tensor.
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

[[nodiscard]] CallFields FieldsOf(AttentionArgs* args);
[[nodiscard]] CallFields FieldsOf(AttentionGradArgs* args);
[[nodiscard]] CallFields FieldsOf(PromptAttentionArgs* args);
/// The caller must be allowed to change the views that args->k and args->v span.
[[nodiscard]] CallFields FieldsOf(DecodeAttentionArgs* args);
[[nodiscard]] CallFields FieldsOf(SparseAttentionArgs* args);
[[nodiscard]] CallFields FieldsOf(SparseAttentionGradArgs* args);
[[nodiscard]] CallFields FieldsOf(LightningIndexerArgs* args);
[[nodiscard]] CallFields FieldsOf(LightningIndexerGradArgs* args);
[[nodiscard]] CallFields FieldsOf(DenseIndexerLseArgs* args);
[[nodiscard]] CallFields FieldsOf(SparseIndexerLossArgs* args);
[[nodiscard]] CallFields FieldsOf(DenseIndexerLossArgs* args);
[[nodiscard]] CallFields FieldsOf(MergeArgs* args);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CALL_FIELDS_H_
