#ifndef FA_OPS_RANKS_ROWS_MESSENGER_H_
#define FA_OPS_RANKS_ROWS_MESSENGER_H_

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fa/transport.h"
#include "ops/ranks/rows/unit_messages.h"

namespace fa::ops {

/// Instead of a request that is waited for no more.
inline constexpr Transport::Request kNoRequest = -1;

/// What a run has under way in its transport at a time, at most.
struct MessagesUnderWay {
  int64_t requests = 0;
  int64_t bytes = 0;  ///< of the longest message
};

/// Pointers to the tensors of an exchange in their order, without an allocation.
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

/// Where the tensors of a unit's two exchanges are in a run: what comes before its products, and what goes back.
struct UnitPlaces {
  Pointers<const std::byte> in_from, back_from;
  Pointers<std::byte> in_to, back_to;
};

/// Memory of one exchange under way.
struct ExchangeBuffers {
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
  Transport::Request* requests = nullptr;  ///< messages.receive.size(), then messages.send.size()

  [[nodiscard]] std::span<Transport::Request> RequestsOf(const UnitMessages& messages) const {
    return {requests, messages.receive.size() + messages.send.size()};
  }
};

/// Writes NaN of every type over results that a rank has not computed but sends: others wait for them.
void SpoilResults(std::byte* results, size_t bytes);

/// One exchange of rows: Start and Keep, PutKept and Arrive, Leave.
class Messenger {
 public:
  Messenger(Transport& transport, std::span<const RowTensor> from, std::span<const RowTensor> to)
      : transport_(transport), from_(from), to_(to) {}

  /// Starts to receive, packs what is sent and starts to send it.
  /// @param data  of each tensor: kv head 0 where `from` says
  [[nodiscard]] Status Start(const UnitMessages& messages, int tag, std::span<const std::byte* const> data,
                             const ExchangeBuffers& buffers) const;
  /// Packs what the rank keeps, behind the messages that it sends.
  void Keep(const UnitMessages& messages, std::span<const std::byte* const> from, const ExchangeBuffers& buffers) const;
  /// Puts it in its place.
  void PutKept(const UnitMessages& messages, std::span<std::byte* const> to, const ExchangeBuffers& buffers) const;
  /// Waits for what is received and puts it in its place.
  [[nodiscard]] Status Arrive(const UnitMessages& messages, std::span<std::byte* const> to,
                              const ExchangeBuffers& buffers) const;
  /// Waits until everything has been sent.
  [[nodiscard]] Status Leave(const UnitMessages& messages, const ExchangeBuffers& buffers) const;

 private:
  /// Of a request that has not been waited for.
  [[nodiscard]] Status Wait(Transport::Request& request) const;

  Transport& transport_;
  std::span<const RowTensor> from_, to_;  ///< the same tensors where they are sent from, and where they arrive
};

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_ROWS_MESSENGER_H_
