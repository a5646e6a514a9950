#ifndef FA_TOOLS_FA_DOCTOR_TERMINAL_H_
#define FA_TOOLS_FA_DOCTOR_TERMINAL_H_

#include <string>
#include <string_view>

namespace fa::tool {

enum class Colour { kGreen, kYellow, kRed };

/// Returns the text in this colour if standard output is a terminal with colours and the variable NO_COLOR is not set.
/// Otherwise returns the text unchanged.
[[nodiscard]] std::string Painted(Colour colour, std::string_view text);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_TERMINAL_H_
