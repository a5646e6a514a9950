#ifndef FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_
#define FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/tensor.h"

namespace fa::tool {

/// Parses integers such as "3,9,20". Throws UsageError that names the flag.
[[nodiscard]] std::vector<int64_t> ParseIntegers(const char* flag, const std::string& text);
/// Parses an integer from 0 to 2^64-1. A negative number is an error; it does not wrap. Throws UsageError that names
/// the flag.
[[nodiscard]] uint64_t ParseUnsigned(const char* flag, const std::string& text);
/// Returns the number of heads that --head-num gives, or 0 if it is not given. Throws UsageError for a number below 1.
[[nodiscard]] int64_t HeadNumber(std::optional<int64_t> given);
/// Throws UsageError unless a head size is from 1 to 1024. The error names the flag and the size: "--shape: D=0, want 1
/// to 1024".
void CheckHeadSize(const char* flag, const char* name, int64_t size);
/// Throws UsageError if lists of the lengths of so many sequences would take too much memory. The error names the flag.
void CheckListedSequences(const char* flag, int64_t sequences);
/// Returns the layout with a name such as "BNSD". Throws UsageError.
[[nodiscard]] Layout ParseLayout(const std::string& text);
/// Returns the type with the name "f32", "f16" or "bf16". Throws UsageError.
[[nodiscard]] DType ParseFloatType(const std::string& text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_
