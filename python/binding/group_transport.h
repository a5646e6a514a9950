#ifndef FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
#define FA_PYTHON_BINDING_GROUP_TRANSPORT_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/transport.h"

namespace fa::python {

/// The transport of one call over a ProcessGroup of torch.distributed. Messages are uint8 tensors that share the
/// library's memory. The functions hold the interpreter's lock while they run Python code. The group itself releases
/// the lock while it waits.
///
/// Reserve makes room in the transport's own lists, but every message still allocates tensors and work objects. An
/// exception of the group becomes an internal error. All unfinished work objects are then dropped, so that no message
/// can write to memory after the call. The interpreter's lock must be held when this object is destroyed.
class GroupTransport final : public Transport {
 public:
  /// @param first_tag  first of the kTags consecutive tags that belong to this call alone
  GroupTransport(nanobind::object group, int first_tag);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  Status Reserve(int64_t requests, size_t bytes) override;
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override;
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override;
  Status Wait(Request request) override;
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  /// Returns the latest exception that the group has raised, or None.
  [[nodiscard]] nanobind::object raised() const { return raised_; }

 private:
  template <typename Call>
  Status Attempt(const char* what, const Call& call);
  Status Start(const char* method, int peer, int tag, std::span<const std::byte> bytes, Request* request);

  nanobind::object group_;
  int first_tag_, rank_, ranks_;
  std::vector<std::vector<nanobind::object>> works_;  ///< per request: the work objects of its message's pieces
  std::vector<Request> free_;
  size_t most_pieces_ = 0;  ///< works_ has room for this many pieces per message
  nanobind::object raised_ = nanobind::none();
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
