#ifndef FA_MPI_H_
#define FA_MPI_H_

/// @file
/// Attention over the processes of an MPI communicator, in library libfa_mpi (target fa::mpi).
/// @code{.cpp}
/// // Between MPI_Init_thread and MPI_Finalize, on 4 processes that hold 512 rows each of a sequence of 2048.
/// std::vector<float> q(8 * 512 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 512, 64});
/// args.out = fa::View(out.data(), {1, 8, 512, 64});
/// fa::SequenceShards shards;
/// shards.sq = shards.sk = 2048;
/// return fa::mpi::FlashAttention(args, {.mask = fa::Mask::Causal()}, shards, MPI_COMM_WORLD);
/// @endcode

#include <mpi.h>

#include <memory>

#include "fa/ranked_attention.h"

/// Attention over the processes of an MPI communicator. libfa itself does not know MPI.
///
/// The program initialises MPI with MPI_THREAD_FUNNELED or more, and the thread that initialised MPI makes all calls.
///
/// If MPI returns an error, the call returns kInternal with MPI's text, and the transport must not be used again.
/// Messages of the call may still be under way. So the outputs have no meaning, and the call's workspace stays with the
/// transport. If messages outlive the transport, that workspace is never freed. A workspace that the caller lent as a
/// span must not be used before MPI has ended. The other ranks may wait for this rank until the program ends them
/// (MPI_Abort).
namespace fa::mpi {

/// Makes a transport between the ranks of `communicator`, which it duplicates, for the functions of
/// fa/ranked_attention.h. The call is collective: every rank makes it. The transport's destructor frees the duplicate,
/// so it must run before MPI_Finalize. One transport serves many plans and counts the bytes that their runs have moved.
/// @return kInvalidArgument if MPI is not initialised, or without MPI_THREAD_FUNNELED; kOutOfMemory on all ranks if one
/// rank lacks memory; kInternal if MPI returned an error
FA_API Result<std::shared_ptr<Transport>> MakeTransport(MPI_Comm communicator);

/// Runs fa::FlashAttention over the ranks of `communicator` (fa/ranked_attention.h). The call is collective.
FA_API Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                             MPI_Comm communicator, Context* context = nullptr);

/// Plans a call of FlashAttention once for many runs. Planning is collective. The plan owns its transport, so it must
/// be destroyed before MPI_Finalize.
FA_API Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                         const SequenceShards& shards, MPI_Comm communicator,
                                                         Context* context = nullptr);

/// Runs fa::FlashAttentionGrad over the ranks of `communicator`. The call is collective.
FA_API Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options,
                                 const SequenceShards& shards, MPI_Comm communicator, Context* context = nullptr);
/// Plans a call of FlashAttentionGrad once for many runs, as PlanFlashAttention does.
FA_API Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards, MPI_Comm communicator,
                                                                 Context* context = nullptr);

}  // namespace fa::mpi

#endif  // FA_MPI_H_
