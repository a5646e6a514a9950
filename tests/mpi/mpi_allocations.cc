// Allocations inside MPI must not count as allocations of the library. So this file defines functions of MPI that pause
// the counting and call MPI's own functions. The test and libfa_mpi find the functions of this file first.
#include <mpi.h>

#include "support/allocation_counter.h"

namespace {

using fa::test::UncountedAllocations;

}  // namespace

extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const UncountedAllocations uncounted;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const UncountedAllocations uncounted;
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const UncountedAllocations uncounted;
  return PMPI_Waitall(count, requests, statuses);
}
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  const UncountedAllocations uncounted;
  return PMPI_Testall(count, requests, done, statuses);
}
int MPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int all_count, MPI_Datatype all_type,
                  MPI_Comm comm) {
  const UncountedAllocations uncounted;
  return PMPI_Allgather(mine, count, type, all, all_count, all_type, comm);
}
int MPI_Allreduce(const void* mine, void* all, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const UncountedAllocations uncounted;
  return PMPI_Allreduce(mine, all, count, type, op, comm);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const UncountedAllocations uncounted;
  return PMPI_Comm_dup(comm, made);
}
int MPI_Comm_free(MPI_Comm* comm) {
  const UncountedAllocations uncounted;
  return PMPI_Comm_free(comm);
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  const UncountedAllocations uncounted;
  return PMPI_Comm_set_errhandler(comm, handler);
}
}
