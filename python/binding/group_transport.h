#ifndef FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
#define FA_PYTHON_BINDING_GROUP_TRANSPORT_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/transport.h"

namespace fa::python {

/// A ProcessGroup of torch.distributed as a transport of one call: bytes lie in uint8 tensors that share the library's
/// memory. Its functions take the interpreter's lock while they are in Python; the group waits without it.
///
/// Reserve makes room in its own lists; tensors and the group's works are allocated with each message.
/// An exception of the group becomes an internal error, and every message under way is let go of before the call ends:
/// what arrives later finds no memory. The object is destroyed with the lock held.
class GroupTransport final : public Transport {
 public:
  /// @param first_tag  of the kTags that a call has for itself
  GroupTransport(nanobind::object group, int first_tag);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  Status Reserve(int64_t requests, size_t bytes) override;
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override;
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override;
  Status Wait(Request request) override;
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  /// What the group has raised; none if nothing.
  [[nodiscard]] nanobind::object raised() const { return raised_; }

 private:
  template <typename Call>
  Status Attempt(const char* what, const Call& call);
  Status Start(const char* method, int peer, int tag, std::span<const std::byte> bytes, Request* request);

  nanobind::object group_;
  int first_tag_, rank_, ranks_;
  std::vector<std::vector<nanobind::object>> works_;  ///< per request: those of its pieces
  std::vector<Request> free_;
  size_t most_pieces_ = 0;  ///< of a message that there is room for
  nanobind::object raised_ = nanobind::none();
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
