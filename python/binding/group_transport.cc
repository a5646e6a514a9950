#include "group_transport.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace fa::python {
namespace {

// The most bytes in one tensor, because the backends of torch.distributed count elements with an int.
constexpr size_t kMostBytes = size_t{1} << 30;

/// Returns a tensor that shares these bytes. The tensor does not keep them alive.
nb::object TensorOf(std::span<const std::byte> bytes) {
  using Array = nb::ndarray<nb::pytorch, uint8_t, nb::device::cpu>;
  const size_t shape[] = {bytes.size()};
  auto* data = const_cast<std::byte*>(bytes.data());
  return nb::cast(Array(data, 1, shape, nb::handle()), nb::rv_policy::reference);
}

nb::list ListOf(nb::object item) {
  nb::list list;
  list.append(std::move(item));
  return list;
}

}  // namespace

GroupTransport::GroupTransport(nb::object group, int first_tag)
    : group_(std::move(group)),
      first_tag_(first_tag),
      rank_(nb::cast<int>(group_.attr("rank")())),
      ranks_(nb::cast<int>(group_.attr("size")())) {}

template <typename Call>
Status GroupTransport::Attempt(const char* what, const Call& call) {
  const nb::gil_scoped_acquire lock;
  std::string text;
  try {
    call();
    return Status::Ok();
  } catch (nb::python_error& error) {
    raised_ = nb::borrow(error.value());
    text = nb::cast<std::string>(nb::str(raised_.type().attr("__name__"))) + ": " + nb::str(raised_).c_str();
  } catch (const std::bad_alloc&) {
    works_.clear();
    return Status::OutOfMemory("a message of torch.distributed");
  } catch (const std::exception& error) {
    text = error.what();
  }
  works_.clear();
  return Status::Internal("torch.distributed: " + std::string(what) + ": " + text);
}

Status GroupTransport::Reserve(int64_t requests, size_t bytes) {
  try {
    const auto count = static_cast<size_t>(requests);
    works_.reserve(count);
    free_.reserve(count);
    while (works_.size() < count) {
      free_.push_back(std::ssize(works_));
      works_.emplace_back();
    }
    most_pieces_ = std::max(most_pieces_, (bytes + kMostBytes - 1) / kMostBytes);
    for (std::vector<nb::object>& works : works_) works.reserve(most_pieces_);
    return Status::Ok();
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("messages under way");
  }
}

Status GroupTransport::Start(const char* method, int peer, int tag, std::span<const std::byte> bytes,
                             Request* request) {
  return Attempt(method, [&] {
    if (tag >= kTags) throw std::out_of_range("tag " + std::to_string(tag) + " of " + std::to_string(kTags));
    if (free_.empty()) {
      free_.push_back(std::ssize(works_));
      works_.emplace_back();
    }
    *request = free_.back();
    free_.pop_back();
    const nb::object start = group_.attr(method);
    for (size_t at = 0; at < bytes.size(); at += kMostBytes) {
      const auto piece = bytes.subspan(at, std::min(kMostBytes, bytes.size() - at));
      works_[static_cast<size_t>(*request)].push_back(start(ListOf(TensorOf(piece)), peer, first_tag_ + tag));
    }
  });
}

Status GroupTransport::Send(int to, int tag, std::span<const std::byte> bytes, Request* request) {
  return Start("send", to, tag, bytes, request);
}

Status GroupTransport::Receive(int from, int tag, std::span<std::byte> bytes, Request* request) {
  return Start("recv", from, tag, bytes, request);
}

Status GroupTransport::Wait(Request request) {
  return Attempt("wait", [&] {
    std::vector<nb::object>& works = works_[static_cast<size_t>(request)];
    for (const nb::object& work : works) work.attr("wait")();
    works.clear();
    free_.push_back(request);
  });
}

Status GroupTransport::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  return Attempt("allgather", [&] {
    nb::list parts;
    for (size_t rank = 0; rank < static_cast<size_t>(ranks_); ++rank) {
      parts.append(TensorOf(all.subspan(rank * mine.size(), mine.size())));
    }
    group_.attr("allgather")(ListOf(parts), ListOf(TensorOf(mine))).attr("wait")();
  });
}

}  // namespace fa::python
