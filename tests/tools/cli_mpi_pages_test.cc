// `fa-mpi completion` and `fa-mpi man` describe fa-mpi's own commands. Neither command needs mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tools/cli_run.h"
#include "tools/completion_script.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST(MpiCompletion, BashOffersCommandsFlagsAndValues) {
  const CompletionScript bash("fa-mpi", FA_MPI_CLI, "bash");
  EXPECT_THAT(bash.BashOffers("fa-mpi ''"),
              AllOf(IsSupersetOf({"run", "bench", "completion", "man"}), Not(Contains("plan"))));
  EXPECT_THAT(bash.BashOffers("fa-mpi bench ''"), IsSupersetOf({"forward", "backward"}));
  EXPECT_THAT(bash.BashOffers("fa-mpi run forward --heads"), ElementsAre("--heads-in-flight"));
  EXPECT_THAT(bash.BashOffers("fa-mpi run forward --query t"), ElementsAre("tensor.npy"));
  EXPECT_THAT(bash.BashOffers("fa-mpi run backward --strategy s"), ElementsAre("sequence"));
}

TEST(MpiCompletion, FishOffersCommandsAndValues) {
  ASSERT_EQ(RunCommand("command -v fish", "", "").exit_code, 0) << "scripts/setup.sh installs it";
  const CompletionScript fish("fa-mpi", FA_MPI_CLI, "fish");
  EXPECT_THAT(fish.FishOffers("fa-mpi ru"), ElementsAre("run"));
  EXPECT_THAT(fish.FishOffers("fa-mpi bench forward --strategy h"), ElementsAre("heads"));
}

TEST(MpiCompletion, ZshOffersCommandsAndValues) {
  ASSERT_EQ(RunCommand("command -v zsh", "", "").exit_code, 0) << "scripts/setup.sh installs it";
  const CompletionScript zsh("fa-mpi", FA_MPI_CLI, "zsh");
  EXPECT_THAT(zsh.ZshOffers("fa-mpi run ''", 3), IsSupersetOf({"forward", "backward"}));
  EXPECT_THAT(zsh.ZshOffers("fa-mpi run forward --strategy ''", 5), UnorderedElementsAre("auto", "heads", "sequence"));
}

TEST(MpiMan, PagesAreGoodTroffAndNameTheProgram) {
  const ScratchFolder folder;
  const CliResult made = RunCommand(FA_MPI_CLI, "man --out '" + folder.Path("") + "'", "");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(folder.Names(),
              ElementsAre("fa-mpi-bench.1", "fa-mpi-completion.1", "fa-mpi-man.1", "fa-mpi-run.1", "fa-mpi.1"));
  EXPECT_THAT(folder.Read("fa-mpi-run.1"),
              AllOf(HasSubstr(".TH fa\\-mpi\\-run 1"), HasSubstr("\\fBfa\\-mpi run backward\\fR"),
                    HasSubstr("\\-\\-heads\\-in\\-flight"), HasSubstr("NumPy's .npy"), HasSubstr("\\fBfa\\fR(1),\n")));
  const bool renders = RunCommand("command -v groff", "", "").exit_code == 0;
  for (const std::string& name : folder.Names()) {
    const std::string own = "\\fB" + std::string("fa\\-mpi");
    EXPECT_THAT(folder.Read(name), HasSubstr(own)) << name;
    if (!renders) continue;
    const CliResult rendered = RunCommand("groff", "-man -Tascii -P-cbou -ww '" + folder.Path(name) + "'", "");
    EXPECT_EQ(rendered.err, "") << name;
    EXPECT_THAT(rendered.out, AllOf(HasSubstr("fa-mpi"), HasSubstr("EXIT STATUS"))) << name;
  }
}

// Packages are built on machines on which MPI cannot start, so `fa-mpi man` must not start MPI.
TEST(MpiMan, DoesNotBeginMpi) {
  const std::string broken = "OMPI_MCA_pml=none OMPI_MCA_ess=none";
  const CliResult page = RunCommand(FA_MPI_CLI, "man", broken);
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, HasSubstr(".TH fa\\-mpi 1"));
  EXPECT_EQ(RunCommand(FA_MPI_CLI, "completion tcsh", broken).err, "fa-mpi: SHELL: 'tcsh', want bash, zsh or fish\n");
}

}  // namespace
}  // namespace fa::test
