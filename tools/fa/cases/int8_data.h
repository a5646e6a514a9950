#ifndef FA_TOOLS_FA_CASES_INT8_DATA_H_
#define FA_TOOLS_FA_CASES_INT8_DATA_H_

#include <cstdint>

#include "cases/forward_case.h"
#include "fa/prompt_flash_attention.h"
#include "files/tensors.h"

namespace fa::tool {

/// The tensors of an int8 case of prompt attention in memory. The bytes are random and the same in every run.
class Int8Data {
 public:
  explicit Int8Data(const ForwardCase& prompt);

  /// Returns the arguments of the call. The arguments point into this object.
  [[nodiscard]] const PromptAttentionArgs& args() const { return args_; }
  /// Returns the bytes of the inputs and the output, each counted once.
  [[nodiscard]] double bytes() const;

  /// Compares the first, the last and some other rows with plain loops in double. Throws Failure if an element differs
  /// by more than rounding explains.
  /// @return the largest error, as a fraction of what rounding explains
  double CheckRows() const;

 private:
  [[nodiscard]] double CheckOutRow(int64_t batch, int64_t head, int64_t row) const;

  const ForwardCase& case_;
  PromptAttentionArgs args_;
  Tensor q_, k_, v_, out_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_INT8_DATA_H_
