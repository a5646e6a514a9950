#ifndef FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_
#define FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_

#include <array>
#include <cstddef>
#include <span>

#include "core/run/executor.h"
#include "fa/transport.h"

namespace fa::ops {

/// Messages that are under way while the tiles of a unit run, none of which waits for them: the rows of the next unit
/// and the results of the one before. A transport moves large messages only while it is called, whichever message the
/// call is about, so one of them is tested at a time: the first that has not arrived or left.
class UnitProgress final : public core::ArrivalGates {
 public:
  using Requests = std::span<Transport::Request>;

  /// @param under_way  what is found done becomes kNoRequest
  UnitProgress(Transport& transport, std::array<Requests, 2> under_way) : transport_(transport), left_(under_way) {}

  /// Nothing is under way, or the transport can only wait.
  [[nodiscard]] bool idle() const;
  [[nodiscard]] Status Poll(core::GateOpener& opener) override;
  /// What has not arrived when the tiles end is waited for afterwards.
  [[nodiscard]] bool done() const override { return true; }
  /// The first error of the transport.
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  Transport& transport_;
  std::array<Requests, 2> left_;
  Status failed_;
};

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_RUN_UNIT_PROGRESS_H_
