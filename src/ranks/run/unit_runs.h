#ifndef FA_RANKS_RUN_UNIT_RUNS_H_
#define FA_RANKS_RUN_UNIT_RUNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <span>

#include "fa/status.h"
#include "fa/transport.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/unit_messages.h"
#include "ranks/run/unit_progress.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Runs the units of a call over ranks, one after the other. While a unit is computed, the rows of the next unit and
/// the results of the unit before are on their way.
///
/// No rank waits forever: all ranks do the steps of Run in one order, and wait only for earlier steps of other ranks.
template <typename Unit>
class UnitRuns {
 public:
  explicit UnitRuns(const std::deque<Unit>& units) : units_(units) {}

  /// Books the memory of a run in its workspace.
  /// @param results_travel  whether units send results back to other ranks
  void Book(bool results_travel, tiling::WorkspacePlan& workspace) {
    size_t send[2] = {}, receive[2] = {}, staged = 0;
    int64_t requests[2] = {};
    for (const Unit& unit : units_) {
      for (const bool back : {false, true}) {
        const UnitMessages& messages = back ? unit.back() : unit.in();
        send[back] = std::max(send[back], messages.send_bytes + static_cast<size_t>(messages.kept_from.bytes));
        receive[back] = std::max(receive[back], messages.receive_bytes);
        requests[back] = std::max(requests[back], std::ssize(messages.send) + std::ssize(messages.receive));
        for (const auto* of : {&messages.send, &messages.receive}) {
          for (const PeerRows& message : *of) under_way_.bytes = std::max(under_way_.bytes, message.bytes);
        }
      }
      staged = std::max(staged, unit.staged_bytes());
    }
    results_travel_ = results_travel;
    for (const bool back : {false, true}) {
      if (back && !results_travel) break;
      for (Booked& booked : std::span(booked_[back]).first(std::min(units_.size(), std::size(booked_[back])))) {
        booked.send = workspace.Book("rows to send", send[back]);
        booked.receive = workspace.Book("rows received", receive[back]);
        booked.requests = workspace.Book("requests", static_cast<size_t>(requests[back]) * sizeof(Transport::Request));
        under_way_.requests += requests[back];
      }
    }
    staged_ = workspace.Book("rows of the heads in flight", staged);
  }

  /// Returns the messages of all units in flight, in both directions.
  [[nodiscard]] const MessagesUnderWay& under_way() const { return under_way_; }
  [[nodiscard]] std::byte* Staged(std::byte* workspace) const { return workspace + staged_; }

  /// Runs all units.
  /// @param compute  compute(number of the unit, progress) makes the unit's products, and may poll for messages
  ///                 meanwhile. `compute` returns only errors of the transport.
  /// @param taken taken(number of the unit) is called when the unit's results have arrived in their tensors. The staged
  ///               memory of all units is free during this call
  template <typename Args, typename Compute, typename Taken>
  [[nodiscard]] Status Run(Transport& transport, const Args& args, std::byte* workspace, const Compute& compute,
                           const Taken& taken) const {
    Exchange<Args> exchange{*this, transport, args, workspace};
    if (!units_.empty()) {
      FA_RETURN_IF_ERROR(exchange.Bring(0));
    }
    for (size_t u = 0; u < units_.size(); ++u) {
      if (u + 1 < units_.size()) {
        FA_RETURN_IF_ERROR(exchange.Bring(u + 1));
      }
      FA_RETURN_IF_ERROR(exchange.Arrive(u));
      UnitProgress progress(transport, exchange.UnderWay(u));
      FA_RETURN_IF_ERROR(compute(u, progress));
      if (!progress.failed().ok()) return progress.failed();
      FA_RETURN_IF_ERROR(exchange.Leave(u));
      if (!results_travel_) continue;
      FA_RETURN_IF_ERROR(exchange.SendBack(u));
      if (u == 0) continue;
      FA_RETURN_IF_ERROR(exchange.TakeBack(u - 1));
      taken(u - 1);
    }
    if (!results_travel_ || units_.empty()) return Status::Ok();
    FA_RETURN_IF_ERROR(exchange.TakeBack(units_.size() - 1));
    taken(units_.size() - 1);
    return Status::Ok();
  }

 private:
  struct Booked {
    size_t send = 0, receive = 0, requests = 0;
  };

  template <typename Args>
  struct Exchange {
    const UnitRuns& runs;
    Transport& transport;
    const Args& args;
    std::byte* workspace;

    [[nodiscard]] const Unit& Of(size_t u) const { return runs.units_[u]; }
    [[nodiscard]] UnitPlaces Places(size_t u) const { return Of(u).PlacesOf(args, runs.Staged(workspace)); }
    [[nodiscard]] ExchangeBuffers Buffers(size_t u, bool back) const {
      const Booked& booked = runs.booked_[back][u % tiling::kUnitsInFlight];
      return {workspace + booked.send, workspace + booked.receive,
              reinterpret_cast<Transport::Request*>(workspace + booked.requests)};
    }
    [[nodiscard]] Messenger In(size_t u) const { return {transport, Of(u).in_from(), Of(u).in_to()}; }
    [[nodiscard]] Messenger Back(size_t u) const { return {transport, Of(u).back_from(), Of(u).back_to()}; }
    /// Returns the requests that are under way while unit u is computed. Sends of unit u come first, since other ranks
    /// may be waiting for them.
    [[nodiscard]] std::array<UnitProgress::Requests, 3> UnderWay(size_t u) const {
      const bool comes = u + 1 < runs.units_.size(), goes_back = runs.results_travel_ && u > 0;
      return {Buffers(u, false).RequestsOf(Of(u).in()).subspan(Of(u).in().receive.size()),
              comes ? Buffers(u + 1, false).RequestsOf(Of(u + 1).in()) : UnitProgress::Requests(),
              goes_back ? Buffers(u - 1, true).RequestsOf(Of(u - 1).back()) : UnitProgress::Requests()};
    }
    static int TagOf(size_t u, bool back) {
      return static_cast<int>(u % tiling::kUnitsInFlight) + (back ? tiling::kUnitsInFlight : 0);
    }

    Status Bring(size_t u) const {
      return In(u).Start(Of(u).in(), TagOf(u, false), Places(u).in_from, Buffers(u, false));
    }
    Status Arrive(size_t u) const {
      const UnitPlaces places = Places(u);
      In(u).Keep(Of(u).in(), places.in_from, Buffers(u, false));
      In(u).PutKept(Of(u).in(), places.in_to, Buffers(u, false));
      FA_RETURN_IF_ERROR(In(u).Arrive(Of(u).in(), places.in_to, Buffers(u, false)));
      Of(u).ClearSlack(runs.Staged(workspace));
      return Status::Ok();
    }
    Status Leave(size_t u) const { return In(u).Leave(Of(u).in(), Buffers(u, false)); }

    Status SendBack(size_t u) const {
      const UnitPlaces places = Places(u);
      const ExchangeBuffers buffers = Buffers(u, true);
      FA_RETURN_IF_ERROR(Back(u).Start(Of(u).back(), TagOf(u, true), places.back_from, buffers));
      Back(u).Keep(Of(u).back(), places.back_from, buffers);
      return Status::Ok();
    }
    Status TakeBack(size_t u) const {
      const UnitMessages& back = Of(u).back();
      Back(u).PutKept(back, Places(u).back_to, Buffers(u, true));
      FA_RETURN_IF_ERROR(Back(u).Arrive(back, Places(u).back_to, Buffers(u, true)));
      return Back(u).Leave(back, Buffers(u, true));
    }
  };

  const std::deque<Unit>& units_;
  bool results_travel_ = false;
  MessagesUnderWay under_way_;
  /// Memory for arriving rows and memory for results, each for kUnitsInFlight units.
  Booked booked_[2][tiling::kUnitsInFlight];
  size_t staged_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_UNIT_RUNS_H_
