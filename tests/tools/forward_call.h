#ifndef FA_TESTS_TOOLS_FORWARD_CALL_H_
#define FA_TESTS_TOOLS_FORWARD_CALL_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npy/npy_array.h"
#include "reference/attention.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {

/// One `fa run forward` with random inputs. The inputs exist twice: in files of a layout, and in double for the
/// reference.
class ForwardCall {
 public:
  /// Fills q, k and v of `problem` with numbers rounded to `format`, and writes them to files. If d_rope > 0, does the
  /// same with the rope parts.
  ForwardCall(std::string layout, const reference::Problem& problem,
              reference::Format format = reference::Format::kF32);

  reference::Problem problem;
  std::string flags;  ///< the flags at the end of the command line

  /// Writes the array to a new file, and adds ` FLAG path` to the flags.
  void AddFile(const std::string& flag, const npy::Array& array);
  /// Returns a tensor of the problem as a file of this layout holds it, with `columns` values per row. `rows` has the
  /// number of query rows or of key rows of each sequence.
  [[nodiscard]] npy::Array InLayout(const std::vector<double>& canonical, int64_t heads,
                                    const std::vector<int64_t>& rows, int64_t columns) const;

  /// Runs the command with flags for every output.
  [[nodiscard]] CliResult Run();
  /// Runs the command and compares output, maximum, sum and lse with the reference.
  [[nodiscard]] ::testing::AssertionResult Matches();
  /// Returns the bytes of the output file.
  [[nodiscard]] std::string OutBytes() const { return scratch_.Read("out.npy"); }
  [[nodiscard]] const ScratchFolder& scratch() const { return scratch_; }

 private:
  struct Outputs {
    npy::Array out, max, sum, lse;
  };
  [[nodiscard]] ::testing::AssertionResult ShapesMatch(const Outputs& outputs) const;
  [[nodiscard]] ::testing::AssertionResult ValuesMatch(const Outputs& outputs) const;
  [[nodiscard]] double Value(const npy::Array& array, int64_t at) const;
  [[nodiscard]] std::string OutLayout() const { return layout_ == "BNSD_BSND" ? "BSND" : layout_; }

  /// Returns the index at which row i of batch element b and head n begins in a file of layout `layout`.
  [[nodiscard]] int64_t At(const std::string& layout, int64_t heads, const std::vector<int64_t>& rows, int64_t columns,
                           int64_t b, int64_t n, int64_t i) const;
  [[nodiscard]] std::vector<int64_t> Shape(const std::string& layout, int64_t heads, const std::vector<int64_t>& rows,
                                           int64_t columns) const;
  [[nodiscard]] std::vector<double> RandomRows(int64_t heads, const std::vector<int64_t>& rows, int64_t columns);

  std::string layout_;
  reference::Format format_;
  ScratchFolder scratch_;
  int files_ = 0;
  uint64_t seed_ = 1;
};

/// Returns an array with this type, shape and numbers.
template <typename T>
[[nodiscard]] npy::Array ArrayOf(npy::ElementType type, std::vector<int64_t> shape, const std::vector<T>& numbers) {
  npy::Array array(type, std::move(shape));
  for (size_t i = 0; i < numbers.size(); ++i) array.as<T>()[i] = numbers[i];
  return array;
}

/// Returns a problem whose sizes are all small.
[[nodiscard]] reference::Problem SmallProblem();

/// Returns numbers drawn from the normal distribution.
[[nodiscard]] std::vector<float> RandomFloats(size_t count, uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_FORWARD_CALL_H_
