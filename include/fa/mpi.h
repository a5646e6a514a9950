#ifndef FA_MPI_H_
#define FA_MPI_H_

#include <mpi.h>

#include <memory>

#include "fa/ranked_attention.h"

/// Attention over the processes of an MPI communicator: library libfa_mpi, target fa::mpi. libfa itself knows no MPI.
///
/// MPI has been initialised, with MPI_THREAD_FUNNELED or more, and calls are made by the thread that initialised it.
/// MPI's own errors become a status (kInternal, with MPI's text) where MPI returns them. The transport is then not used
/// again: it cancels the receives that no message has matched. Matched ones and sends go on, so the call's outputs are
/// void, and its workspace stays with the transport; where messages outlive that, it is never freed. Memory that a
/// caller has lent as a span must not be used before MPI has ended. The other ranks may wait for this one until the
/// program ends them (MPI_Abort).
/// By default an MPI ends the job when one of its processes dies.
namespace fa::mpi {

/// The ranks of a duplicate of `communicator`, which is freed with the transport: before MPI_Finalize. Collective. For
/// the functions of fa/ranked_attention.h: one transport serves many plans, and tells what their runs have moved.
/// @return kInvalidArgument (MPI is not initialised, or has no MPI_THREAD_FUNNELED); kOutOfMemory, on all ranks;
/// kInternal (an error of MPI)
FA_API Result<std::shared_ptr<Transport>> MakeTransport(MPI_Comm communicator);

/// Collective over `communicator`; as fa::FlashAttention over ranks (fa/ranked_attention.h).
FA_API Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                             MPI_Comm communicator, Context* context = nullptr);

/// Plans once for many runs. The plan keeps its transport: let it go before MPI_Finalize.
FA_API Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                         const SequenceShards& shards, MPI_Comm communicator,
                                                         Context* context = nullptr);

/// Collective over `communicator`; as fa::FlashAttentionGrad over ranks.
FA_API Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options,
                                 const SequenceShards& shards, MPI_Comm communicator, Context* context = nullptr);
/// Plans it once for many runs, as PlanFlashAttention.
FA_API Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards, MPI_Comm communicator,
                                                                 Context* context = nullptr);

}  // namespace fa::mpi

#endif  // FA_MPI_H_
