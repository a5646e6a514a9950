#ifndef FA_RANKS_CALL_AGREEMENT_H_
#define FA_RANKS_CALL_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fa/context.h"
#include "fa/options.h"
#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "fa/transport.h"
#include "ops/bind/bind_attention.h"
#include "ranks/call/score_rows.h"

namespace fa::ops {

/// A call in words, one line "name=value" per fact. All ranks must agree about it.
class CallDescription {
 public:
  void Add(std::string_view name, std::string_view value);
  void Add(std::string_view name, int64_t value) { Add(name, std::to_string(value)); }
  /// Adds the first numbers, their count, and a hash of all.
  void Add(std::string_view name, std::span<const int64_t> values);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The facts that a rank knows by itself.
struct RankFacts {
  Status status;            ///< status of its own arguments
  std::string description;  ///< CallDescription of its arguments; empty after an error
  Isa isa = Isa::kPortable;
  int workers = 1;
  int64_t memory_bytes = 0;       ///< memory that its plan may take
  uint32_t pse_forms = kAnyForm;  ///< ScoreRows::pse_forms
};

/// The facts about which all ranks agree.
struct Agreed {
  Isa isa = Isa::kPortable;       ///< the lowest of all ranks
  bool isa_lowered = false;       ///< whether some rank has a higher level
  int workers = 1;                ///< the least of all ranks
  int64_t memory_bytes = 0;       ///< the least of all ranks
  uint32_t pse_forms = kAnyForm;  ///< forms of pse that the sizes of all ranks allow
};

// Both functions are collective. If all is well they allocate no memory for up to 2048 ranks, and 32 bytes per rank for
// more.

/// Compares every rank's facts with all others. @return the same status on every rank: the error of the lowest rank
/// that has one. If all are well but descriptions differ, the status names the first line that differs, with both
/// values.
[[nodiscard]] Result<Agreed> AgreeOnCall(Transport& transport, const RankFacts& facts);

/// Compares every rank's status with all others, by one word per rank while all is well. @return as AgreeOnCall
[[nodiscard]] Status AgreeOnStatus(Transport& transport, const Status& status);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_AGREEMENT_H_
