#ifndef FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_
#define FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/tensor.h"

namespace fa::tool {

/// "3,9,20" as integers. Throws UsageError naming the flag.
[[nodiscard]] std::vector<int64_t> ParseIntegers(const char* flag, const std::string& text);
/// 0 to 2^64-1; a number below 0 is an error and not wrapped round. Throws UsageError naming the flag.
[[nodiscard]] uint64_t ParseUnsigned(const char* flag, const std::string& text);
/// A head size of a flag: 1 to 1024. Throws UsageError naming the flag and the size: "--shape: D=0, want 1 to 1024".
void CheckHeadSize(const char* flag, const char* name, int64_t size);
/// A number of sequences that is to become lists of their lengths.
void CheckListedSequences(const char* flag, int64_t sequences);
/// "BNSD" and so on.
[[nodiscard]] Layout ParseLayout(const std::string& text);
/// "f32", "f16" or "bf16".
[[nodiscard]] DType ParseFloatType(const std::string& text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_FLAG_VALUES_H_
