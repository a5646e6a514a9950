#ifndef FA_RANKS_ROWS_MESSENGER_H_
#define FA_RANKS_ROWS_MESSENGER_H_

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fa/transport.h"
#include "ranks/rows/unit_messages.h"

namespace fa::ops {

/// The value of a request that has ended, or for which nobody waits any more.
inline constexpr Transport::Request kNoRequest = -1;

/// The most messages that a run has under way at one time, and the length of the longest.
struct MessagesUnderWay {
  int64_t requests = 0;
  int64_t bytes = 0;  ///< bytes of the longest message
};

/// One address per tensor of an exchange. The object allocates no memory.
template <typename Byte>
class Pointers {
 public:
  void Add(Byte* data) {
    assert(count_ < data_.size());
    data_[count_++] = data;
  }
  operator std::span<Byte* const>() const { return {data_.data(), count_}; }  // NOLINT(google-explicit-constructor)

 private:
  std::array<Byte*, 9> data_{};
  size_t count_ = 0;
};

/// Addresses of a unit's tensors: rows that arrive before the unit is computed, and results that go back.
struct UnitPlaces {
  Pointers<const std::byte> in_from, back_from;
  Pointers<std::byte> in_to, back_to;
};

/// Memory that one exchange needs while it is under way.
struct ExchangeBuffers {
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
  Transport::Request* requests = nullptr;  ///< one per message that is received, then one per message that is sent

  [[nodiscard]] std::span<Transport::Request> RequestsOf(const UnitMessages& messages) const {
    return {requests, messages.receive.size() + messages.send.size()};
  }
};

/// Fills results with NaN. A rank that has not computed its results sends NaN, because other ranks wait for a message.
void SpoilResults(std::byte* results, size_t bytes);

/// One exchange of rows between ranks. Call Start and Keep, then PutKept and Arrive, then Leave.
class Messenger {
 public:
  Messenger(Transport& transport, std::span<const RowTensor> from, std::span<const RowTensor> to)
      : transport_(transport), from_(from), to_(to) {}

  /// Starts to receive, packs the rows that are to be sent, and starts to send them.
  /// @param data  for each tensor of from_, the address of kv head 0
  [[nodiscard]] Status Start(const UnitMessages& messages, int tag, std::span<const std::byte* const> data,
                             const ExchangeBuffers& buffers) const;
  /// Packs the rows that the rank keeps for itself into the send buffer, behind the messages.
  void Keep(const UnitMessages& messages, std::span<const std::byte* const> from, const ExchangeBuffers& buffers) const;
  /// Unpacks the kept rows to their place.
  void PutKept(const UnitMessages& messages, std::span<std::byte* const> to, const ExchangeBuffers& buffers) const;
  /// Waits for the messages that arrive, and unpacks their rows to their place.
  [[nodiscard]] Status Arrive(const UnitMessages& messages, std::span<std::byte* const> to,
                              const ExchangeBuffers& buffers) const;
  /// Waits until all messages have been sent.
  [[nodiscard]] Status Leave(const UnitMessages& messages, const ExchangeBuffers& buffers) const;

 private:
  /// Waits for a request, unless it is kNoRequest.
  [[nodiscard]] Status Wait(Transport::Request& request) const;

  Transport& transport_;
  std::span<const RowTensor> from_, to_;  ///< layouts of the same tensors, on the sender and on the receiver
};

}  // namespace fa::ops

#endif  // FA_RANKS_ROWS_MESSENGER_H_
