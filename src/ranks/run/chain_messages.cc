#include "ranks/run/chain_messages.h"

#include <algorithm>
#include <utility>

#include "core/run/guarded_call.h"
#include "ranks/rows/unit_messages.h"

namespace fa::ops {
namespace {

// Each chunk whose sums go from rank to rank has a tag of its own, since ranks send and receive chunks in different
// orders. These tags follow all other tags (unit_messages.h).
constexpr int kFirstTag = kMoveBackTag + 1;
static_assert(kFirstTag + tiling::kMostTravellingChunks <= Transport::kTags);

// The number of blocks that one poll examines. The number is enough for the blocks that run and for as many blocks
// whose sums arrive meanwhile.
constexpr size_t kBlocksPolled = ChainMessages::kMostReceives;

}  // namespace

ChainMessages::ChainMessages(Transport& transport, std::span<const tiling::ChainBlock> blocks,
                             std::span<BlockState> states, const Sums& sums, std::span<Transport::Request> leaving,
                             UnitProgress& others)
    : transport_(transport),
      blocks_(blocks),
      states_(states),
      sums_(sums),
      leaving_(leaving),
      others_(others),
      in_order_(!transport.CanTest()) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    BlockState& state = states[b];
    state.tiles_left.store(blocks[b].tiles, std::memory_order_relaxed);
    state.received = !blocks[b].receives();
    state.sent = !blocks[b].sends();
    state.request = kNoRequest;
  }
}

Status ChainMessages::Poll(core::OnArrival arrived) {
  tested_ = false;
  const size_t end = in_order_ ? first_ + 1 : std::min(blocks_.size(), first_ + kBlocksPolled);
  for (size_t b = first_; b < end && b < blocks_.size(); ++b) {
    failed_ = core::GuardedCall("messages of sums", [&] { return PollBlock(b, arrived); });
    if (!failed_.ok()) return failed_;
  }
  const auto ended = [&] {
    return states_[first_].sent && states_[first_].tiles_left.load(std::memory_order_acquire) == 0;
  };
  while (first_ < blocks_.size() && ended()) ++first_;
  if (tested_ || in_order_) return Status::Ok();
  failed_ = core::GuardedCall("messages of sums", [&] { return MoveOthers(arrived); });
  return failed_;
}

Status ChainMessages::MoveOthers(core::OnArrival arrived) {
  const auto leaves = [&](size_t b) {
    return states_[b].sent && blocks_[b].sends() && LastSend(blocks_[b].of.chunk) != kNoRequest;
  };
  while (first_kept_ < first_ && !leaves(first_kept_)) ++first_kept_;
  for (size_t b = first_kept_; b < std::min(blocks_.size(), first_ + kBlocksPolled); ++b) {
    if (!leaves(b)) continue;
    bool left = false;
    return HasLeft(blocks_[b].of.chunk, /*may_wait=*/false, &left);
  }
  return others_.Poll(arrived);
}

Status ChainMessages::PollBlock(size_t block, core::OnArrival arrived) {
  BlockState& state = states_[block];
  if (!state.received) {
    FA_RETURN_IF_ERROR(Receive(block, in_order_));
    if (state.received) arrived(blocks_[block].arrival);
  }
  if (state.sent || state.tiles_left.load(std::memory_order_acquire) > 0) return Status::Ok();
  return Send(block);
}

Status ChainMessages::HasLeft(int32_t chunk, bool may_wait, bool* left) {
  Transport::Request& sent = LastSend(chunk);
  *left = true;
  if (sent == kNoRequest) return Status::Ok();
  Status status = Finish(sent, may_wait, left);
  if (*left) sent = kNoRequest;
  return status;
}

Status ChainMessages::Finish(Transport::Request request, bool may_wait, bool* done) {
  *done = true;
  if (may_wait) return transport_.Wait(request);
  tested_ = true;
  return transport_.Test(request, done);
}

Status ChainMessages::Receive(size_t block, bool may_wait) {
  BlockState& state = states_[block];
  const tiling::SumBlock& of = blocks_[block].of;
  if (state.request == kNoRequest) {
    // Sums of a chunk that come back to this rank arrive in the memory from which the rank sent them. So they are
    // received only after that send has ended.
    const int32_t before = blocks_[block].before;
    if (before >= 0 && !states_[static_cast<size_t>(before)].sent) return Status::Ok();
    bool left = false;
    if (Status status = HasLeft(of.chunk, may_wait, &left); !status.ok() || !left) return status;
    const auto bytes = std::as_writable_bytes(sums_.Of(of.chunk));
    FA_RETURN_IF_ERROR(transport_.Receive(of.from, kFirstTag + sums_.TravelNumberOf(of.chunk), bytes, &state.request));
  }
  Status status = Finish(state.request, may_wait, &state.received);
  if (state.received) state.request = kNoRequest;
  return status;
}

Status ChainMessages::Send(size_t block) {
  const tiling::SumBlock& of = blocks_[block].of;
  states_[block].sent = true;
  return transport_.Send(of.to, kFirstTag + sums_.TravelNumberOf(of.chunk), std::as_bytes(sums_.Of(of.chunk)),
                         &LastSend(of.chunk));
}

Status ChainMessages::SendSpoilt(size_t block) {
  const std::span<std::byte> sums = std::as_writable_bytes(sums_.Of(blocks_[block].of.chunk));
  SpoilResults(sums.data(), sums.size());
  return Send(block);
}

Status ChainMessages::PassOn() {
  for (size_t b = first_; b < blocks_.size() && failed_.ok(); ++b) {
    if (!states_[b].received) failed_ = Receive(b, /*may_wait=*/true);
    if (failed_.ok() && !states_[b].sent) failed_ = SendSpoilt(b);
  }
  first_ = blocks_.size();
  return failed_;
}

}  // namespace fa::ops
