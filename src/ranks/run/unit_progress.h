#ifndef FA_RANKS_RUN_UNIT_PROGRESS_H_
#define FA_RANKS_RUN_UNIT_PROGRESS_H_

#include <array>
#include <cstddef>
#include <span>

#include "core/run/executor.h"
#include "fa/transport.h"

namespace fa::ops {

/// Polls messages that are under way while a unit's tiles run and for which no tile waits. The messages carry rows that
/// the unit sends, rows of the next unit, and results and sums of the previous unit. A transport may move large
/// messages only while it is called, and any call moves all messages. So a poll tests only the first message that has
/// not ended.
class UnitProgress final : public core::Arrivals {
 public:
  using Requests = std::span<Transport::Request>;

  /// Prepares the polls of one unit.
  /// @param under_way  the requests, in the order in which they are tested; finished requests become kNoRequest
  UnitProgress(Transport& transport, const std::array<Requests, 3>& under_way)
      : transport_(transport), under_way_{Requests(), under_way[0], under_way[1], under_way[2]} {}
  /// Makes the polls test `requests` before the other requests. Call this function before the first poll.
  void TestFirst(Requests requests) { under_way_.front() = requests; }

  /// Returns whether polls have nothing to do: no message is under way, or the transport cannot test messages.
  [[nodiscard]] bool idle();
  [[nodiscard]] Status Poll(core::OnArrival arrived) override;
  /// Always returns true. If messages have not arrived when the tiles end, the rank waits for them afterwards.
  [[nodiscard]] bool done() const override { return true; }
  /// Returns the first error that the transport returned.
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  /// Returns the first request that is under way, or null.
  [[nodiscard]] Transport::Request* First();

  Transport& transport_;
  std::array<Requests, 4> under_way_;
  Status failed_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_UNIT_PROGRESS_H_
