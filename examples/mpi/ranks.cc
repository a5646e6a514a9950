// Causal attention over one sequence that lies on all processes: mpirun -n 4 ranks
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "fa/fa.h"
#include "fa/mpi.h"

namespace {

constexpr int64_t kHeads = 4, kDim = 64, kRows = 2048;

// Returns the first row of a rank. Rank r of P holds chunk r of P. All chunks except the last consist of whole units of
// 128 rows.
int64_t FirstRow(int rank, int ranks) { return kRows / 128 * rank / ranks * 128; }

int RunRank() {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int64_t rows = FirstRow(rank + 1, ranks) - FirstRow(rank, ranks);
  std::vector<float> q(static_cast<size_t>(kHeads * rows * kDim)), out(q.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));

  const fa::Dims shape = {1, kHeads, rows, kDim};
  fa::AttentionArgs args;
  args.q = args.k = args.v = fa::View(q.data(), shape);
  args.out = fa::View(out.data(), shape);
  fa::AttentionOptions options;
  options.mask = fa::Mask::Causal();
  fa::SequenceShards shards;
  shards.cut = fa::SequenceShards::Cut::kContiguous;
  shards.sq = shards.sk = kRows;
  const fa::Status status = fa::mpi::FlashAttention(args, options, shards, MPI_COMM_WORLD);
  if (!status.ok()) {
    if (rank == 0) std::printf("%s\n", status.message().c_str());
    return 1;
  }
  // Row 0 sees only itself.
  if (rank == 0 && rows > 0 && out[1] != q[1]) return 1;
  std::printf("rank %d of %d: rows %lld to %lld\n", rank, ranks, static_cast<long long>(FirstRow(rank, ranks)),
              static_cast<long long>(FirstRow(rank + 1, ranks)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const int failed = RunRank();
  MPI_Finalize();
  return failed;
}
