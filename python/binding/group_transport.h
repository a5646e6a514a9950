#ifndef FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
#define FA_PYTHON_BINDING_GROUP_TRANSPORT_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fa/transport.h"

namespace fa::python {

/// A ProcessGroup of torch.distributed as the transport of one call. Bytes are sent as uint8 tensors that share the
/// library's memory. The functions hold the interpreter's lock while they are in Python. The group waits without the
/// lock.
///
/// Reserve makes room in the transport's own lists. Each message allocates tensors and the group's work objects, on
/// which a caller waits. An exception of the group becomes an internal error. Then every unfinished message is dropped
/// before the call ends, so that a late message finds no memory to write to. The object is destroyed with the lock
/// held.
class GroupTransport final : public Transport {
 public:
  /// @param first_tag  first of the kTags tags that only this call uses
  GroupTransport(nanobind::object group, int first_tag);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  Status Reserve(int64_t requests, size_t bytes) override;
  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override;
  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override;
  Status Wait(Request request) override;
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;

  /// Returns the exception that the group has raised, or None.
  [[nodiscard]] nanobind::object raised() const { return raised_; }

 private:
  template <typename Call>
  Status Attempt(const char* what, const Call& call);
  Status Start(const char* method, int peer, int tag, std::span<const std::byte> bytes, Request* request);

  nanobind::object group_;
  int first_tag_, rank_, ranks_;
  std::vector<std::vector<nanobind::object>> works_;  ///< for each request, the work objects of its pieces
  std::vector<Request> free_;
  size_t most_pieces_ = 0;  ///< the most pieces of one message for which there is room
  nanobind::object raised_ = nanobind::none();
};

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_GROUP_TRANSPORT_H_
