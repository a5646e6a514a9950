#ifndef FA_TESTS_TOOLS_CLI_MPI_RUN_H_
#define FA_TESTS_TOOLS_CLI_MPI_RUN_H_

#include <string>

namespace fa::test {

/// The environment for mpirun. It allows more ranks than cores, and gives each rank one thread.
inline constexpr const char* kRanksEnvironment =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none FA_NUM_THREADS=1";

inline std::string MpiCommand(int ranks) {
  return std::string(FA_MPIEXEC) + " -n " + std::to_string(ranks) + " " FA_MPI_CLI;
}

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_CLI_MPI_RUN_H_
