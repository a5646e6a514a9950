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

/// The description of a call, one line "name=value" per property of the call. All ranks must have the same description.
class CallDescription {
 public:
  void Add(std::string_view name, std::string_view value);
  void Add(std::string_view name, int64_t value) { Add(name, std::to_string(value)); }
  /// Adds a line with the first of the numbers, their count, and a hash of all numbers.
  void Add(std::string_view name, std::span<const int64_t> values);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// What a rank knows before it has heard from other ranks.
struct RankFacts {
  Status status;            ///< status of the rank's own arguments
  std::string description;  ///< CallDescription of the rank's arguments; empty after an error
  Isa isa = Isa::kPortable;
  int workers = 1;
  int64_t memory_bytes = 0;       ///< memory that the rank's plan may take
  uint32_t pse_forms = kAnyForm;  ///< forms of pse that the sizes on this rank allow (ScoreRows::pse_forms)
};

/// What all ranks know after they have exchanged their RankFacts.
struct Agreed {
  Isa isa = Isa::kPortable;       ///< the lowest instruction-set level of all ranks
  bool isa_lowered = false;       ///< whether some rank has a higher instruction-set level
  int workers = 1;                ///< the least number of workers of all ranks
  int64_t memory_bytes = 0;       ///< the least memory of all ranks
  uint32_t pse_forms = kAnyForm;  ///< forms of pse that the sizes on all ranks allow
};

/// Compares the RankFacts of all ranks. All ranks must call this function. Without an error the function allocates no
/// memory for up to 2048 ranks, and 32 bytes per rank for more ranks.
/// @return the Agreed of all ranks, or the same error on every rank: the error of the lowest rank that has one. If no
/// rank has an error but descriptions differ, the error names the first line that differs, with both values.
[[nodiscard]] Result<Agreed> AgreeOnCall(Transport& transport, const RankFacts& facts);

/// Compares the statuses of all ranks. All ranks must call this function. The function allocates as little as
/// AgreeOnCall does. If no rank has an error, each rank sends only one word.
/// @return the same status on every rank, as AgreeOnCall does
[[nodiscard]] Status AgreeOnStatus(Transport& transport, const Status& status);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_AGREEMENT_H_
