// A transport that moves messages by MPI. The transport uses a duplicate of the caller's communicator, whose error
// handler makes MPI return errors. Messages are sent in pieces of at most 1 GiB, since MPI counts bytes in an int.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fa/mpi.h"

namespace fa::mpi {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

Status StatusOf(int code, const char* call) {
  if (code == MPI_SUCCESS) return Status::Ok();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  try {
    return Status::Internal(std::string(call) + ": " + std::string(text, static_cast<size_t>(length)));
  } catch (const std::bad_alloc&) {
    return Status::Internal(std::string_view(call));
  }
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() = default;
  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;  // after MPI_Finalize no message can be under way
    std::vector<Workspace> kept = TakeKept();
    if ((!failed_.ok() || !kept.empty()) && !HasEnded()) {
      *abandoned_ = std::move(kept);
      (void)abandoned_.release();
    }
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  /// Takes over the communicator `own`.
  void Use(MPI_Comm own) {
    comm_ = own;
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &ranks_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }

  Status Reserve(int64_t requests, size_t bytes) override {
    most_pieces_ = std::max(most_pieces_, (bytes + kMostBytes - 1) / kMostBytes);
    free_.reserve(static_cast<size_t>(requests));
    while (std::ssize(pending_) < requests) AddRequest();
    for (Pending& pending : pending_) pending.pieces.reserve(most_pieces_);
    return Status::Ok();
  }

  Status Send(int to, int tag, std::span<const std::byte> bytes, Request* request) override {
    return InPieces(bytes.size(), /*receives=*/false, request, [&](size_t at, int count, MPI_Request* piece) {
      return StatusOf(MPI_Isend(bytes.data() + at, count, MPI_BYTE, to, tag, comm_, piece), "MPI_Isend");
    });
  }

  Status Receive(int from, int tag, std::span<std::byte> bytes, Request* request) override {
    return InPieces(bytes.size(), /*receives=*/true, request, [&](size_t at, int count, MPI_Request* piece) {
      return StatusOf(MPI_Irecv(bytes.data() + at, count, MPI_BYTE, from, tag, comm_, piece), "MPI_Irecv");
    });
  }

  Status Wait(Request request) override {
    if (!failed_.ok()) return failed_;
    std::vector<MPI_Request>& pieces = pending_[static_cast<size_t>(request)].pieces;
    const int code = MPI_Waitall(static_cast<int>(pieces.size()), pieces.data(), MPI_STATUSES_IGNORE);
    if (code == MPI_SUCCESS) Free(request);
    return Checked(StatusOf(code, "MPI_Waitall"));
  }

  Status Test(Request request, bool* done) override {
    *done = false;
    if (!failed_.ok()) return failed_;
    std::vector<MPI_Request>& pieces = pending_[static_cast<size_t>(request)].pieces;
    int flag = 0;
    const int code = MPI_Testall(static_cast<int>(pieces.size()), pieces.data(), &flag, MPI_STATUSES_IGNORE);
    *done = code == MPI_SUCCESS && flag != 0;
    if (*done) Free(request);
    return Checked(StatusOf(code, "MPI_Testall"));
  }
  [[nodiscard]] bool CanTest() const override { return true; }

  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (!failed_.ok()) return failed_;
    const auto count = static_cast<int>(mine.size());
    return Checked(
        StatusOf(MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_), "MPI_Allgather"));
  }

 private:
  struct Pending {
    std::vector<MPI_Request> pieces;  ///< pieces of a request that is under way
    bool receives = false;
  };

  template <typename Start>
  Status InPieces(size_t bytes, bool receives, Request* request, const Start& start) {
    if (!failed_.ok()) return failed_;
    try {
      if (free_.empty()) AddRequest();
      Pending& pending = pending_[static_cast<size_t>(free_.back())];
      pending.receives = receives;
      pending.pieces.reserve((bytes + kMostBytes - 1) / kMostBytes);
      *request = free_.back();
      free_.pop_back();
      for (size_t at = 0; at < bytes; at += kMostBytes) {
        const auto count = static_cast<int>(std::min(kMostBytes, bytes - at));
        if (Status status = start(at, count, &pending.pieces.emplace_back(MPI_REQUEST_NULL)); !status.ok()) {
          return Checked(std::move(status));
        }
      }
      return Status::Ok();
    } catch (const std::bad_alloc&) {
      return Checked(Status::OutOfMemory("a message under way"));
    }
  }
  /// Adds a free request, and makes room in free_ for all requests, so that Free() never allocates.
  void AddRequest() {
    if (free_.capacity() == pending_.size()) free_.reserve(2 * pending_.size() + 1);
    pending_.emplace_back();
    free_.push_back(std::ssize(pending_) - 1);
  }
  void Free(Request request) {
    pending_[static_cast<size_t>(request)].pieces.clear();
    free_.push_back(request);
  }
  /// After an error no message is started any more, and receives that no message has matched are cancelled. MPI cannot
  /// take back sends and matched receives. Every later call gets the same error, so no call waits for ranks that wait
  /// for this rank.
  Status Checked(Status status) {
    if (status.ok()) return status;
    failed_ = status;
    for (Pending& pending : pending_) {
      for (MPI_Request& piece : pending.pieces) {
        if (pending.receives && piece != MPI_REQUEST_NULL) MPI_Cancel(&piece);
      }
    }
    return status;
  }
  /// Returns whether, after an error, every message has arrived, left or been cancelled. The requests of messages that
  /// have not ended are freed.
  bool HasEnded() {
    bool all = true;
    for (Pending& pending : pending_) {
      for (MPI_Request& piece : pending.pieces) {
        int done = 0;
        if (piece == MPI_REQUEST_NULL) continue;
        if (MPI_Test(&piece, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
        all = false;
        if (piece != MPI_REQUEST_NULL) MPI_Request_free(&piece);
      }
    }
    return all;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  std::vector<Pending> pending_;  ///< state of each request, by the request's number
  std::vector<Request> free_;     ///< free requests, with room for all requests, so that Free() never allocates
  size_t most_pieces_ = 0;        ///< number of pieces of the longest message that there is room for
  Status failed_;
  /// Workspaces that MPI may still read and write. The workspaces are never freed. The vector is allocated with the
  /// transport, because the destructor may find no memory.
  std::unique_ptr<std::vector<Workspace>> abandoned_ = std::make_unique<std::vector<Workspace>>();
};

}  // namespace

Result<std::shared_ptr<Transport>> MakeTransport(MPI_Comm communicator) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) {
    return Status::InvalidArgument(
        std::string_view(initialized == 0 ? "MPI_Init has not been called" : "MPI_Finalize has been called"));
  }
  int level = MPI_THREAD_SINGLE;
  FA_RETURN_IF_ERROR(StatusOf(MPI_Query_thread(&level), "MPI_Query_thread"));
  if (level < MPI_THREAD_FUNNELED) {
    return Status::InvalidArgument(
        "MPI has been initialised without threads, want MPI_Init_thread with "
        "MPI_THREAD_FUNNELED");
  }
  // MPI promises at least kTags tags, as many as plans use. The lines below check the promise.
  int* most_tag = nullptr;
  int has_most_tag = 0;
  FA_RETURN_IF_ERROR(
      StatusOf(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most_tag, &has_most_tag), "MPI_Comm_get_attr"));
  constexpr int kWanted = Transport::kTags - 1;
  if (has_most_tag == 0 || *most_tag < kWanted) {
    char text[64];
    std::snprintf(text, sizeof(text), "MPI_TAG_UB is %d, want %d or more", has_most_tag != 0 ? *most_tag : 0, kWanted);
    return Status::Internal(std::string_view(text));
  }
  std::shared_ptr<MpiTransport> transport;
  try {
    transport = std::make_shared<MpiTransport>();
  } catch (const std::bad_alloc&) {  // the Allreduce below tells all ranks
  }
  MPI_Comm own = MPI_COMM_NULL;
  FA_RETURN_IF_ERROR(StatusOf(MPI_Comm_dup(communicator, &own), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  const int made = transport != nullptr ? 1 : 0;
  int all_made = 0;
  Status status = StatusOf(MPI_Allreduce(&made, &all_made, 1, MPI_INT, MPI_MIN, own), "MPI_Allreduce");
  if (status.ok() && all_made == 0) status = Status::OutOfMemory("the transport of a rank");
  if (!status.ok()) {
    MPI_Comm_free(&own);
    return status;
  }
  transport->Use(own);
  return std::shared_ptr<Transport>(std::move(transport));
}

Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                  const SequenceShards& shards, MPI_Comm communicator,
                                                  Context* context) {
  auto transport = MakeTransport(communicator);
  if (!transport.ok()) return transport.status();
  return fa::PlanFlashAttention(args, options, shards, std::move(*transport), context);
}

Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                      MPI_Comm communicator, Context* context) {
  auto plan = PlanFlashAttention(args, options, shards, communicator, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                          const AttentionOptions& options, const SequenceShards& shards,
                                                          MPI_Comm communicator, Context* context) {
  auto transport = MakeTransport(communicator);
  if (!transport.ok()) return transport.status();
  return fa::PlanFlashAttentionGrad(args, options, shards, std::move(*transport), context);
}

Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                          MPI_Comm communicator, Context* context) {
  auto plan = PlanFlashAttentionGrad(args, options, shards, communicator, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa::mpi
