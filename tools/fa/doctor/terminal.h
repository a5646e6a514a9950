#ifndef FA_TOOLS_FA_DOCTOR_TERMINAL_H_
#define FA_TOOLS_FA_DOCTOR_TERMINAL_H_

#include <string>
#include <string_view>

namespace fa::tool {

enum class Colour { kGreen, kYellow, kRed };

/// Returns the text in the given colour if standard output is a terminal that has colours and the variable NO_COLOR is
/// not set. Otherwise returns the text as it is.
[[nodiscard]] std::string Painted(Colour colour, std::string_view text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_TERMINAL_H_
