// Checks that forward and backward over the processes of mpirun give the bytes that one process gives. For this, every
// rank also computes the whole call alone, and compares the rows that it owns. In some runs allocations of rank 0 fail.
// The exit status says whether all results were right. `mpi_ranks ROWS` takes sequences of ROWS rows, for emulators.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fa/mpi.h"
#include "support/allocation_counter.h"
#include "support/cases/backward_problem.h"
#include "support/cases/forward_problem.h"
#include "support/cases/rank_rows.h"

namespace fa::test {
namespace {

int failures = 0;

void Check(bool right, const std::string& what) {
  if (right) return;
  ++failures;
  std::printf("wrong: %s\n", what.c_str());
}

auto PlanOver(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
              std::shared_ptr<Transport> transport) {
  return PlanFlashAttention(args, options, shards, std::move(transport));
}
auto PlanOver(const AttentionGradArgs& args, const AttentionOptions& options, const SequenceShards& shards,
              std::shared_ptr<Transport> transport) {
  return PlanFlashAttentionGrad(args, options, shards, std::move(transport));
}

/// Runs a call over a new transport, and compares the number of bytes that the transport moves with the number that the
/// plan states.
template <typename Args>
void RunCounted(const Args& args, const AttentionOptions& options, const SequenceShards& shards,
                const std::string& name) {
  const auto transport = mpi::MakeTransport(MPI_COMM_WORLD);
  if (!transport.ok()) return Check(false, transport.status().message());
  const auto plan = PlanOver(args, options, shards, *transport);
  const Status status = plan.ok() ? plan->Run(args) : plan.status();
  Check(status.ok(), name + ": " + status.message());
  Check(status.ok() && MovedBytesOfThePlan(*plan, **transport), name + ": bytes moved are those of the plan");
}

void CompareWithOneProcess(const ForwardCase& c, const SequenceShards& shards, int rank, int ranks) {
  const ForwardProblem one(c), over_ranks(c);
  const Status alone = one.Run(nullptr);
  Check(alone.ok(), alone.message());
  const auto rows = [&](int64_t of) { return RowsOfRank(shards, of, rank, ranks); };
  RankTensors mine(rows(shards.sq), rows(shards.sk)), theirs(rows(shards.sq), rows(shards.sk));
  const AttentionArgs args = PartOf(over_ranks.args(), c.layout, mine);
  const std::string name = "rank " + std::to_string(rank) + ToString(c);
  RunCounted(args, over_ranks.options(), shards, name);
  const AttentionArgs want = one.args();
  Check(SameBytes(args.out, theirs.Part(TensorView(want.out), 2, true)), name + ": out");
  Check(SameBytes(args.lse, theirs.Part(TensorView(want.lse), 2, true)), name + ": lse");
}

void CompareGradients(const BackwardCase& c, const SequenceShards& shards, int rank, int ranks) {
  const BackwardProblem one(c), over_ranks(c);
  const Status alone = one.Run(nullptr);
  Check(alone.ok(), alone.message());
  const auto rows = [&](int64_t of) { return RowsOfRank(shards, of, rank, ranks); };
  RankTensors mine(rows(shards.sq), rows(shards.sk)), theirs(rows(shards.sq), rows(shards.sk));
  AttentionGradArgs args = PartOf(over_ranks.args(), c.forward.layout, mine);
  args.dsink = over_ranks.args().dsink;
  if (c.forward.pse == PseForm::kRow) args.dpse = over_ranks.args().dpse;
  const std::string name = "rank " + std::to_string(rank) + ToString(c.forward);
  RunCounted(args, over_ranks.options(), shards, name);
  const AttentionGradArgs want = one.args();
  const int axis = c.forward.packed() ? 0 : 2;
  Check(SameBytes(args.dq, theirs.Part(TensorView(want.dq), axis, true)), name + ": dq");
  Check(SameBytes(args.dk, theirs.Part(TensorView(want.dk), axis, false)), name + ": dk");
  Check(SameBytes(args.dv, theirs.Part(TensorView(want.dv), axis, false)), name + ": dv");
  if (c.forward.sink) Check(SameBytes(args.dsink, want.dsink), name + ": dsink");
  if (c.forward.pse == PseForm::kRow) Check(SameBytes(args.dpse, want.dpse), name + ": dpse");
}

/// Calls the functions that take a communicator, and compares their results with one process.
void CallOverACommunicator(int rank, int ranks) {
  BackwardCase c;
  c.forward.lengths = EqualLengths(1, 300, 300);
  const BackwardProblem problem(c), alone(c);
  const ForwardProblem forward(c.forward), forward_alone(c.forward);
  Check(alone.Run(nullptr).ok() && forward_alone.Run(nullptr).ok(), "one process");
  const SequenceShards shards{.sq = 300, .sk = 300, .intervals = {}};
  const std::vector<int64_t> rows = RowsOfRank(shards, 300, rank, ranks);
  RankTensors mine(rows, rows), theirs(rows, rows);
  const AttentionArgs args = PartOf(forward.args(), c.forward.layout, mine);
  Status status = mpi::FlashAttention(args, forward.options(), shards, MPI_COMM_WORLD);
  Check(status.ok() && SameBytes(args.out, theirs.Part(TensorView(forward_alone.args().out), 2, true)),
        "forward over a communicator: " + status.message());
  const AttentionGradArgs grads = PartOf(problem.args(), c.forward.layout, mine);
  status = mpi::FlashAttentionGrad(grads, problem.options(), shards, MPI_COMM_WORLD);
  Check(status.ok() && SameBytes(grads.dk, theirs.Part(TensorView(alone.args().dk), 2, false)),
        "backward over a communicator: " + status.message());
}

/// How the last rank's call differs from the calls of the other ranks.
struct Fault {
  // All ranks return an error message with the last rank's number, followed by this text.
  const char* message;
  SequenceShards::Cut cut = SequenceShards::Cut::kZigzag;
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kAuto;
  float softcap = 0;
  int64_t head_size = 16;
};

/// Expects that all ranks return the same error and write no tensor.
void ExpectOneError(const Fault& fault, int rank, int ranks) {
  ForwardCase c;
  c.lengths = EqualLengths(1, 300, 300);
  SequenceShards shards{.sq = 300, .sk = 300, .intervals = {}};
  const bool at_fault = rank == ranks - 1;
  if (at_fault) {
    c.softcap = fault.softcap;
    shards.cut = fault.cut;
    shards.strategy = fault.strategy;
  }
  const ForwardProblem problem(c);
  RankTensors mine(RowsOfRank(shards, 300, rank, ranks), RowsOfRank(shards, 300, rank, ranks));
  AttentionArgs args = PartOf(problem.args(), c.layout, mine);
  if (at_fault) args.k.shape[3] = fault.head_size;
  constexpr std::byte kUntouched{0x5a};
  int64_t elements = 1;
  for (int i = 0; i < args.out.shape.rank(); ++i) elements *= args.out.shape[i];
  const std::span out(static_cast<std::byte*>(args.out.data), static_cast<size_t>(elements) * SizeOf(args.out.dtype));
  std::fill(out.begin(), out.end(), kUntouched);
  const Status status = mpi::FlashAttention(args, problem.options(), shards, MPI_COMM_WORLD);
  const std::string want = "rank " + std::to_string(ranks - 1) + ": " + fault.message;
  Check(status.code() == StatusCode::kInvalidArgument && status.message().find(want) != std::string::npos,
        "error: " + status.message() + "; want " + want);
  Check(std::all_of(out.begin(), out.end(), [](std::byte byte) { return byte == kUntouched; }),
        std::string("written in spite of ") + fault.message);
}

void ExpectOneErrorOfEachFault(int rank, int ranks) {
  ExpectOneError({.message = "k.shape[3]=5", .head_size = 5}, rank, ranks);
  if (ranks == 1) return;
  ExpectOneError({.message = "softcap=5, want 0 (rank 0)", .softcap = 5}, rank, ranks);
  ExpectOneError({.message = "shards.cut=contiguous, want zigzag (rank 0)", .cut = SequenceShards::Cut::kContiguous},
                 rank, ranks);
  ExpectOneError(
      {.message = "shards.strategy=sequence, want auto (rank 0)", .strategy = SequenceShards::Strategy::kSequence},
      rank, ranks);
}

void RunAll(int64_t sequence) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int mode : {0, 3}) {
      for (const auto strategy : {SequenceShards::Strategy::kSequence, SequenceShards::Strategy::kHeads}) {
        ForwardCase c;
        c.dtype = dtype;
        c.heads = 4;
        c.heads_kv = 2;
        c.d = c.dv = 64;
        c.lengths = EqualLengths(1, sequence, sequence);
        c.mask.mode = mode;
        const SequenceShards shards{.sq = sequence, .sk = sequence, .intervals = {}, .strategy = strategy};
        CompareWithOneProcess(c, shards, rank, ranks);
        if ((dtype == DType::kBF16) != (mode == 3)) continue;
        c.sink = true;
        c.d = c.dv = 16;
        CompareGradients({.forward = c}, shards, rank, ranks);
        c.pse = PseForm::kRow;
        c.pse_type = reference::PseType::kScaleThenAdd;
        CompareGradients({.forward = c}, shards, rank, ranks);
      }
    }
  }
  // Kernels of bf16 pairs add a group of rows at once. Here the rows of a rank begin inside such a group.
  BackwardCase packed;
  packed.forward.dtype = DType::kBF16;
  packed.forward.layout = Layout::kTND;
  packed.forward.sink = true;
  packed.forward.lengths = {{101, 250, 33}, {101, 250, 40}};
  CompareGradients(packed, {.sq = 384, .sk = 391, .intervals = {}, .strategy = SequenceShards::Strategy::kSequence},
                   rank, ranks);
  CallOverACommunicator(rank, ranks);
  ExpectOneErrorOfEachFault(rank, ranks);
}

/// Makes transports again and again. In each round one allocation of rank 0 and all later ones fail. All ranks must get
/// the error, and none may wait for ever.
void MakeTransportsWithoutMemory() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bool short_of_memory = true;
  for (int64_t place = 1; short_of_memory; ++place) {
    StatusCode code = StatusCode::kOk;
    int64_t failed = 0;
    if (rank == 0) {
      const FailingAllocations failing(place, /*all_later=*/true, /*this_thread=*/true);
      code = mpi::MakeTransport(MPI_COMM_WORLD).status().code();
      failed = failing.failed();
    } else {
      code = mpi::MakeTransport(MPI_COMM_WORLD).status().code();
    }
    MPI_Bcast(&failed, sizeof(failed), MPI_BYTE, 0, MPI_COMM_WORLD);
    short_of_memory = failed > 0;
    Check(code == (short_of_memory ? StatusCode::kOutOfMemory : StatusCode::kOk),
          "rank " + std::to_string(rank) + ": code " + std::to_string(static_cast<int>(code)) + " at place " +
              std::to_string(place));
    Check(place > 1 || short_of_memory, "nothing was allocated");
  }
}

/// A rank's part of an output, and the same rows as one process computes them.
struct Output {
  MutableTensorView own;
  TensorView want;

  void Forget() const {
    int64_t elements = 1;
    for (int i = 0; i < own.shape.rank(); ++i) elements *= own.shape[i];
    std::memset(own.data, 0xff, static_cast<size_t>(elements) * SizeOf(own.dtype));
  }
};

template <typename Args>
using PlanCall = Result<PlanFor<Args>> (*)(const Args&, const AttentionOptions&, const SequenceShards&, MPI_Comm,
                                           Context*);

/// Runs the plan again and again. On rank 0's calling thread, every allocation from number `place` on fails, and
/// `place` grows from run to run. No rank may wait for ever. If rank 0 lacks memory for threads, it computes with
/// fewer.
template <typename Problem, typename Args>
void RunWithoutMemory(const Problem& problem, const Args& args, const SequenceShards& shards,
                      const std::vector<Output>& outputs, PlanCall<Args> plan_call, int threads) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bool short_of_memory = true;
  for (int64_t place = 1; short_of_memory; place += 1 + place / 16) {
    // A new context has no workspaces yet, so every run must allocate them.
    const auto context = std::move(Context::Create({.threads = threads})).value();
    const auto plan = plan_call(args, problem.options(), shards, MPI_COMM_WORLD, context.get());
    Check(plan.ok(), plan.status().message());
    for (const Output& output : outputs) output.Forget();
    int64_t failed = 0;
    Status status;
    if (rank == 0) {
      const FailingAllocations failing(place, /*all_later=*/true, /*this_thread=*/true);
      status = plan->Run(args);
      failed = failing.failed();
    } else {
      status = plan->Run(args);
    }
    MPI_Bcast(&failed, sizeof(failed), MPI_BYTE, 0, MPI_COMM_WORLD);
    short_of_memory = failed > 0;
    Check(status.ok() || (short_of_memory && status.code() == StatusCode::kOutOfMemory), status.message());
    for (const Output& output : outputs) {
      Check(!status.ok() || SameBytes(output.own, output.want), "rows of a run at place " + std::to_string(place));
    }
    Check(place > 1 || short_of_memory, "nothing was allocated");
  }
}

/// Runs a plan twice. In the second run no rank may allocate anything; allocations inside MPI do not count.
template <typename Problem, typename Args>
void RunTwice(const Problem& problem, const Args& args, const SequenceShards& shards,
              const std::vector<Output>& outputs, PlanCall<Args> plan_call) {
  const auto context = std::move(Context::Create({.threads = 1})).value();
  const auto plan = plan_call(args, problem.options(), shards, MPI_COMM_WORLD, context.get());
  Check(plan.ok() && plan->Run(args).ok(), "the first run");
  for (const Output& output : outputs) output.Forget();
  Status status;
  int64_t failed = 0;
  {
    const FailingAllocations failing(1, /*all_later=*/true, /*this_thread=*/true);
    status = plan->Run(args);
    failed = failing.failed();
  }
  Check(status.ok() && failed == 0, std::to_string(failed) + " allocations of a second run: " + status.message());
  for (const Output& output : outputs) Check(SameBytes(output.own, output.want), "rows of a second run");
}

void RunAllWithoutMemory(int64_t sequence, int threads, std::initializer_list<SequenceShards::Strategy> strategies) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  BackwardCase c;
  c.forward.heads = 4;
  c.forward.heads_kv = 2;
  c.forward.d = c.forward.dv = 16;
  c.forward.lengths = EqualLengths(1, sequence, sequence);
  c.forward.sink = true;
  const BackwardProblem backward(c), backward_alone(c);
  const ForwardProblem forward(c.forward), forward_alone(c.forward);
  Check(backward_alone.Run(nullptr).ok() && forward_alone.Run(nullptr).ok(), "one process");
  for (const auto strategy : strategies) {
    const SequenceShards shards{.sq = sequence, .sk = sequence, .intervals = {}, .strategy = strategy};
    const std::vector<int64_t> rows = RowsOfRank(shards, sequence, rank, ranks);
    RankTensors mine(rows, rows), alone(rows, rows);
    const auto part = [&](const MutableTensorView& whole, bool queries) {
      return alone.Part(TensorView(whole), 2, queries);
    };
    const AttentionArgs args = PartOf(forward.args(), c.forward.layout, mine), want = forward_alone.args();
    const std::vector<Output> results = {{args.out, part(want.out, true)}, {args.lse, part(want.lse, true)}};
    RunWithoutMemory(forward, args, shards, results, mpi::PlanFlashAttention, threads);
    RunTwice(forward, args, shards, results, mpi::PlanFlashAttention);
    AttentionGradArgs grads = PartOf(backward.args(), c.forward.layout, mine);
    grads.dsink = backward.args().dsink;
    const AttentionGradArgs of_one = backward_alone.args();
    const std::vector<Output> gradients = {{grads.dq, part(of_one.dq, true)},
                                           {grads.dk, part(of_one.dk, false)},
                                           {grads.dv, part(of_one.dv, false)},
                                           {grads.dsink, of_one.dsink}};
    RunWithoutMemory(backward, grads, shards, gradients, mpi::PlanFlashAttentionGrad, threads);
    RunTwice(backward, grads, shards, gradients, mpi::PlanFlashAttentionGrad);
  }
}

/// After an error of a transport, no message arrives any more, and every later call returns the same error.
void ATransportThatFailedLetsGo() {
  constexpr int kTag = 3;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  auto made = mpi::MakeTransport(MPI_COMM_WORLD);
  Check(made.ok(), made.status().message());
  Transport& transport = **made;
  const std::array<std::byte, 8> sent{std::byte{1}};
  std::array<std::byte, 8> received{};
  Transport::Request request = 0;
  const int sender = ranks - 1;
  if (rank == 0) {
    Check(transport.Receive(sender, kTag, received, &request).ok(), "receive");
    const Status status = transport.Send(ranks, kTag, sent, &request);  // ranks are numbered from 0 to ranks - 1
    Check(status.code() == StatusCode::kInternal, "send to nobody: " + status.message());
    bool done = false;
    for (const Status& later : {transport.Wait(request), transport.Test(request, &done),
                                transport.Send(sender, kTag, sent, &request), transport.AllGather({}, {})}) {
      Check(later.message() == status.message(), "later: " + later.message());
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == sender && rank != 0) Check(transport.Send(0, kTag, sent, &request).ok(), "send");
  MPI_Barrier(MPI_COMM_WORLD);
  Check(received == std::array<std::byte, 8>{}, "a message has arrived after an error");
}

}  // namespace
}  // namespace fa::test

int main(int argc, char** argv) {
  fa::test::Check(!fa::mpi::MakeTransport(MPI_COMM_WORLD).ok(), "a transport before MPI_Init");
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const int64_t sequence = argc > 1 ? std::atoll(argv[1]) : 700;
  fa::test::MakeTransportsWithoutMemory();
  fa::test::RunAll(sequence);
  constexpr auto kSequence = fa::SequenceShards::Strategy::kSequence, kHeads = fa::SequenceShards::Strategy::kHeads;
  fa::test::RunAllWithoutMemory(sequence, 1, {kSequence, kHeads});
  fa::test::ATransportThatFailedLetsGo();
  fa::test::RunAllWithoutMemory(sequence, 2,
                                // RunAllWithoutMemory comes last, because fa no longer uses oneTBB once oneTBB has
                                // found no memory.
                                {kSequence});
  int all = 0;
  MPI_Allreduce(&fa::test::failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
