#ifndef FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_
#define FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_

#include <string>

namespace fa::tool {

/// While an object of this class lives, it handles instructions that the CPU lacks, in any thread. Such an instruction
/// ends the process with exit code 1, after `line` was printed to stderr. At most one object may live at a time.
class IllegalInstructionNote {
 public:
  /// @param line  text of the line, without a newline
  explicit IllegalInstructionNote(std::string line);
  ~IllegalInstructionNote();
  IllegalInstructionNote(const IllegalInstructionNote&) = delete;
  IllegalInstructionNote& operator=(const IllegalInstructionNote&) = delete;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_
