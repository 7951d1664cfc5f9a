// SPDX-License-Identifier: Apache-2.0
// How many ranks of a job share this machine, and with how many cores each of them works.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_program.h"
#include "tools/choose/shard_choice.h"
#include "tools/report/usage_error.h"

namespace ampcheck::testing {
namespace {

/// The variables of a job, and nobody else's, as long as the object lives.
class JobVariables {
 public:
  explicit JobVariables(const std::vector<std::pair<std::string, std::string>>& set) {
    for (const char* const name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
          "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_NODEID",
          "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}) {
      if (const char* const was = std::getenv(name)) before_.emplace_back(name, was);
      names_.emplace_back(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  ~JobVariables() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  JobVariables(const JobVariables&) = delete;
  JobVariables& operator=(const JobVariables&) = delete;

 private:
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST(RanksOfAMachine, OfThisMachineAreThoseThatTheJobPutsThere) {
  using Set = std::vector<std::pair<std::string, std::string>>;
  const Set open_mpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}},
            mpich = {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}},
            slurm = {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  const struct {
    Set job, more;
    int here;  // 0: refused
  } cases[] = {
      {{}, {}, 8},
      {open_mpi, {}, 8},
      {open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, 4},
      {open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}}, 0},
      {open_mpi, {{"SLURM_TASKS_PER_NODE", "1(x8)"}}, 8},  // of the batch script around mpirun
      {mpich, {{"MPI_LOCALNRANKS", "2"}}, 2},
      {mpich, {{"PMI_LOCAL_SIZE", "3"}}, 3},
      {mpich, {{"PMI_LOCAL_SIZE", "many"}}, 0},
      {slurm, {}, 8},
      {slurm, {{"SLURM_NTASKS_PER_NODE", "4"}}, 4},
      {slurm, {{"SLURM_NTASKS_PER_NODE", "100"}}, 8},  // never more than there are
      {slurm, {{"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_TASKS_PER_NODE", "2(x4)"}}, 2},
      {slurm, {{"SLURM_TASKS_PER_NODE", "8(x2)"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}}, 2},
      {slurm, {{"SLURM_TASKS_PER_NODE", "3,2(x2),1"}, {"SLURM_NODEID", "0"}}, 3},
      {slurm, {{"SLURM_TASKS_PER_NODE", "3,2(x2),1"}, {"SLURM_NODEID", "2"}}, 2},
      {slurm, {{"SLURM_TASKS_PER_NODE", "3,2(x2),1"}, {"SLURM_NODEID", "3"}}, 1},
      {slurm, {{"SLURM_TASKS_PER_NODE", "1,2(x2),3"}}, 3},  // which node is not said: cores for the fullest one
      {slurm, {{"SLURM_TASKS_PER_NODE", "1,2(x2),3"}, {"SLURM_NODEID", "9"}}, 3},
      {slurm, {{"SLURM_TASKS_PER_NODE", "2(x"}}, 0},
      {slurm, {{"SLURM_TASKS_PER_NODE", "2,"}}, 0},
      {slurm, {{"SLURM_TASKS_PER_NODE", "2(3)"}}, 0},
      {slurm, {{"SLURM_TASKS_PER_NODE", "0(x3)"}}, 0}};
  for (const auto& [job, more, here] : cases) {
    Set all = job;
    all.insert(all.end(), more.begin(), more.end());
    std::string shown;
    for (const auto& [name, value] : all) shown.append(name).append("=").append(value).append(" ");
    const JobVariables variables(all);
    if (here == 0)
      EXPECT_THROW(tools::ranks_of_this_machine(8), tools::UsageError) << shown;
    else
      EXPECT_EQ(tools::ranks_of_this_machine(8), here) << shown;
  }
}

/// Two nodes of two ranks each share no cores: each rank has half of those of its own.
TEST(RanksOfAMachine, OfOtherNodesTakeNoCoresHere) {
  const TemporaryFolder files;
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int cores = CPU_COUNT(&allowed);
  if (cores < 2) GTEST_SKIP() << "one core alone, and two ranks want one each";
  for (const auto& [tasks, ranks] : {std::pair("1(x4)", 1), std::pair("2(x2)", 2), std::pair("4", 4)}) {
    const std::string folder = "nodes" + std::to_string(ranks);
    const ProgramResult job =
        shell("cd '" + files.path() + "'; env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE SLURM_STEP_ID=0 SLURM_PROCID=0 " +
              "SLURM_NTASKS=4 SLURM_NODEID=0 SLURM_TASKS_PER_NODE='" + tasks +
              "' \"$AMPCHECK\" check relu --regimes quick --shapes first --engine mpi --run-file " + folder);
    ASSERT_EQ(job.exit_code, 0) << job.err;
    const std::string claims = shell("cat '" + files.path() + "'/" + folder + "/*.claim").out;
    EXPECT_TRUE(contains(claims, "with " + std::to_string(std::max(1, cores / ranks)) + " of cores")) << claims;
  }
}

}  // namespace
}  // namespace ampcheck::testing
