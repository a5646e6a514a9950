#ifndef FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_
#define FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_

#include <array>
#include <cstddef>
#include <span>

#include "core/run/executor.h"
#include "fa/transport.h"

namespace fa::ops {

/// Messages that are under way while the tiles of a unit run, none of which waits for them: what the unit itself has
/// sent to others, the rows of the next one, results and sums of the one before. A transport moves large messages only
/// while it is called, whichever message the call is about, so one of them is tested at a time: the first that has not
/// arrived or left.
class UnitProgress final : public core::ArrivalGates {
 public:
  using Requests = std::span<Transport::Request>;

  /// @param under_way  in the order in which they are tested; what is found done becomes kNoRequest
  UnitProgress(Transport& transport, const std::array<Requests, 3>& under_way)
      : transport_(transport), under_way_{Requests(), under_way[0], under_way[1], under_way[2]} {}
  /// These are tested before the others. Before the first poll.
  void TestFirst(Requests requests) { under_way_.front() = requests; }

  /// Nothing is under way, or the transport can only wait.
  [[nodiscard]] bool idle();
  [[nodiscard]] Status Poll(core::GateOpener& opener) override;
  /// What has not arrived when the tiles end is waited for afterwards.
  [[nodiscard]] bool done() const override { return true; }
  /// The first error of the transport.
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  /// The first that is under way; null: none is.
  [[nodiscard]] Transport::Request* First();

  Transport& transport_;
  std::array<Requests, 4> under_way_;
  Status failed_;
};

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_
