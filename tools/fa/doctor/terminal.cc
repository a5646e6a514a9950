#include "doctor/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace fa::tool {
namespace {

bool HasColours() {
  const char *refused = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  if (refused != nullptr && *refused != '\0') return false;
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

const char* CodeOf(Colour colour) {
  switch (colour) {
    case Colour::kGreen: return "32";
    case Colour::kYellow: return "33";
    case Colour::kRed: return "31";
  }
  return "0";
}

}  // namespace

std::string Painted(Colour colour, std::string_view text) {
  if (!HasColours()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", CodeOf(colour), text);
}

}  // namespace fa::tool
