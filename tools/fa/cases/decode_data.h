#ifndef FA_TOOLS_FA_CASES_DECODE_DATA_H_
#define FA_TOOLS_FA_CASES_DECODE_DATA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cases/decode_case.h"
#include "cases/forward_data.h"
#include "files/tensors.h"

namespace fa::tool {

/// The tensors of a decode, with random values. Pages lie in random order.
class DecodeData {
 public:
  explicit DecodeData(const DecodeCase& decode);
  DecodeData(const DecodeData&) = delete;
  DecodeData& operator=(const DecodeData&) = delete;

  /// Returns the arguments of the call. The arguments point into this object.
  [[nodiscard]] DecodeAttentionArgs Args();
  /// Returns the bytes of the keys and values that the call reads.
  [[nodiscard]] double key_value_bytes() const;
  /// Returns the memory in which keys and values lie.
  [[nodiscard]] std::vector<std::span<const std::byte>> key_value_memory();
  /// Checks some rows of the output, as ForwardData::CheckRows does.
  void CheckRows() const { dense_.CheckRows(); }

 private:
  void MakeCodes();
  /// Stores the code whose number is nearest to `number`, and returns the code's number.
  [[nodiscard]] float Compress(float number, std::byte* row, int64_t column) const;
  [[nodiscard]] Tensor Rearranged(Tensor& dense, const TensorView& like, int64_t d) const;

  const DecodeCase& case_;
  ForwardData dense_;
  Tensor table_, scale_;
  std::vector<std::pair<float, uint8_t>> codes_;  // the numbers and codes of compressed elements, ascending
  float unit_ = 1;                                // the scale with which all elements are compressed
  // The call's keys and values, if they lie in pages or are compressed. Otherwise these tensors are empty, and the call
  // takes the keys and values of dense_.
  Tensor k_, v_;
  TensorView k_view_, v_view_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_DECODE_DATA_H_
