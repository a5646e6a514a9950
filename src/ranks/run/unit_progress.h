#ifndef FA_RANKS_RUN_UNIT_PROGRESS_H_
#define FA_RANKS_RUN_UNIT_PROGRESS_H_

#include <array>
#include <cstddef>
#include <span>

#include "core/run/executor.h"
#include "fa/transport.h"

namespace fa::ops {

/// Messages that are under way while the tiles of a unit run, and that no tile waits for: what the unit itself has
/// sent, the rows of the next unit, and results and sums of the unit before. A transport may move large messages only
/// while it is called, whichever message the call names. So only one message is tested at a time: the first that has
/// not arrived or left.
class UnitProgress final : public core::Arrivals {
 public:
  using Requests = std::span<Transport::Request>;

  /// @param under_way  requests in the order in which they are tested; finished ones become kNoRequest
  UnitProgress(Transport& transport, const std::array<Requests, 3>& under_way)
      : transport_(transport), under_way_{Requests(), under_way[0], under_way[1], under_way[2]} {}
  /// These requests are tested before the others. Call it before the first poll.
  void TestFirst(Requests requests) { under_way_.front() = requests; }

  /// Whether nothing is under way, or the transport can only wait.
  [[nodiscard]] bool idle();
  [[nodiscard]] Status Poll(core::OnArrival arrived) override;
  /// Messages that have not arrived when the tiles end are waited for afterwards.
  [[nodiscard]] bool done() const override { return true; }
  /// The first error of the transport.
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  /// The first request that is under way, or null.
  [[nodiscard]] Transport::Request* First();

  Transport& transport_;
  std::array<Requests, 4> under_way_;
  Status failed_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_UNIT_PROGRESS_H_
