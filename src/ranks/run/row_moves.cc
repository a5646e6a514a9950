#include "ranks/run/row_moves.h"

#include <algorithm>
#include <iterator>

namespace fa::ops {
namespace {

using Args = AttentionGradArgs;

/// Runs one exchange from its first message to its last.
Status Exchange(const Messenger& messenger, const UnitMessages& messages, int tag,
                std::span<const std::byte* const> from, std::span<std::byte* const> to,
                const ExchangeBuffers& buffers) {
  FA_RETURN_IF_ERROR(messenger.Start(messages, tag, from, buffers));
  messenger.Keep(messages, from, buffers);
  messenger.PutKept(messages, to, buffers);
  FA_RETURN_IF_ERROR(messenger.Arrive(messages, to, buffers));
  return messenger.Leave(messages, buffers);
}

}  // namespace

RowMoves::RowMoves(const tiling::RankPlan& plan, BoundGradRanks& bound, tiling::WorkspacePlan& workspace) {
  const tiling::RankCall& call = bound.forward.call;
  const tiling::AttentionProblem& problem = call.problem;
  BoundAttention& whole = bound.forward.whole;
  const int rank = bound.forward.rank;
  if (!ComputesCopies(call, plan, rank)) return;
  const int64_t rows = plan.q.Count(rank);
  const auto copy_of = [&](RowTensor& tensor) {  // makes the layout of `tensor` dense and returns where its copy lies
    tensor.rows = {.dtype = tensor.rows.dtype, .batch = 0, .head = rows * tensor.columns, .row = tensor.columns};
    return workspace.Book("copies of the rows that this rank computes",
                          static_cast<size_t>(problem.heads_kv * tensor.HeadBytes(rows)));
  };
  const auto add = [&](auto& copied, auto tensor, const layout::Rows& own, int64_t columns, auto& held, auto& copies) {
    RowTensor of{.heads_per_kv = problem.group(), .columns = columns, .rows = own};
    held.push_back(of);
    const size_t at = copy_of(of);
    copied.push_back({tensor, at, static_cast<size_t>(problem.heads_kv * of.HeadBytes(rows))});
    copies.push_back(of);
    return of.rows;
  };
  const auto input = [&](Input tensor, layout::Rows& own, int64_t columns) {
    own = add(inputs_, tensor, own, columns, held_inputs_, copied_inputs_);
  };
  const auto statistic = [&](Input tensor, layout::Stats& own) {
    const layout::Rows as_rows{.dtype = DType::kF32, .batch = own.batch, .head = own.head, .row = own.row};
    const layout::Rows copy = add(inputs_, tensor, as_rows, 1, held_inputs_, copied_inputs_);
    own = {.batch = 0, .head = copy.head, .row = 1, .copies = 1, .copy_stride = 0};
  };
  const auto output = [&](Output tensor, layout::Rows& own, int64_t columns) {
    own = add(outputs_, tensor, own, columns, held_outputs_, copied_outputs_);
  };
  input(&Args::q, whole.q, problem.d);
  if (whole.has_rope) input(&Args::q_rope, whole.q_rope, problem.d_rope);
  input(&Args::out, whole.out, problem.dv);
  input(&Args::d_out, bound.d_out, problem.dv);
  statistic(&Args::softmax_max, whole.softmax_max);
  statistic(&Args::softmax_sum, whole.softmax_sum);
  output(&Args::dq, bound.dq, problem.d);
  if (whole.has_rope) output(&Args::dq_rope, bound.dq_rope, problem.d_rope);

  in_ = MessagesMoved(call, plan, rank, held_inputs_);
  back_ = MessagesMovedBack(call, plan, rank, held_outputs_);
  size_t send = 0, receive = 0, requests = 0;
  for (const UnitMessages* of : {&in_, &back_}) {
    send = std::max(send, of->send_bytes + static_cast<size_t>(of->kept_from.bytes));
    receive = std::max(receive, of->receive_bytes);
    requests = std::max(requests, of->send.size() + of->receive.size());
  }
  send_ = workspace.Book("rows on their way to the ranks that compute them", send);
  receive_ = workspace.Book("rows of other ranks", receive);
  requests_ = workspace.Book("requests of rows", requests * sizeof(Transport::Request));
}

MessagesUnderWay RowMoves::UnderWay() const {
  MessagesUnderWay most;
  for (const UnitMessages* of : {&in_, &back_}) {
    most.requests = std::max(most.requests, std::ssize(of->send) + std::ssize(of->receive));
    for (const auto* messages : {&of->send, &of->receive}) {
      for (const PeerRows& message : *messages) most.bytes = std::max(most.bytes, message.bytes);
    }
  }
  return most;
}

ExchangeBuffers RowMoves::Buffers(std::byte* workspace) const {
  return {workspace + send_, workspace + receive_, reinterpret_cast<Transport::Request*>(workspace + requests_)};
}

Args RowMoves::CopiesOf(const Args& args, std::byte* workspace) const {
  Args copies = args;
  for (const Copied<Input>& input : inputs_) (copies.*input.tensor).data = workspace + input.at;
  for (const Copied<Output>& output : outputs_) (copies.*output.tensor).data = workspace + output.at;
  return copies;
}

Status RowMoves::Bring(Transport& transport, const Args& args, std::byte* workspace) const {
  if (inputs_.empty()) return Status::Ok();
  Pointers<const std::byte> from;
  Pointers<std::byte> to;
  for (const Copied<Input>& input : inputs_) {
    from.Add(static_cast<const std::byte*>((args.*input.tensor).data));
    to.Add(workspace + input.at);
  }
  return Exchange({transport, held_inputs_, copied_inputs_}, in_, kMoveTag, from, to, Buffers(workspace));
}

Status RowMoves::TakeBack(Transport& transport, const Args& args, std::byte* workspace) const {
  if (outputs_.empty()) return Status::Ok();
  Pointers<const std::byte> from;
  Pointers<std::byte> to;
  for (const Copied<Output>& output : outputs_) {
    from.Add(workspace + output.at);
    to.Add(static_cast<std::byte*>((args.*output.tensor).data));
  }
  return Exchange({transport, copied_outputs_, held_outputs_}, back_, kMoveBackTag, from, to, Buffers(workspace));
}

void RowMoves::Spoil(std::byte* workspace) const {
  for (const Copied<Output>& output : outputs_) SpoilResults(workspace + output.at, output.bytes);
}

}  // namespace fa::ops
