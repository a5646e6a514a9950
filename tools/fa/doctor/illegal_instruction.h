#ifndef FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_
#define FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_

#include <string>

namespace fa::tool {

/// While it lives, an instruction that the CPU lacks, in any thread, ends the process with the line on stderr and exit
/// code 1. There is at most one.
class IllegalInstructionNote {
 public:
  /// @param line  without a newline
  explicit IllegalInstructionNote(std::string line);
  ~IllegalInstructionNote();
  IllegalInstructionNote(const IllegalInstructionNote&) = delete;
  IllegalInstructionNote& operator=(const IllegalInstructionNote&) = delete;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_ILLEGAL_INSTRUCTION_H_
