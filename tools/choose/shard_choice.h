// SPDX-License-Identifier: Apache-2.0
// Which part of a run this is: said on the command line, or by the variables of a CI system, a test runner or a
// cluster.
#pragma once

#include <string>

namespace ampcheck::tools {

struct ShardChoice {
  int shard = 1, shards = 1;
  std::string origin = {};  ///< the variables that say it; empty: the command line
};

/// "2/4", or "auto": of these pairs of variables the first that is set; without any it is the whole run.
/// GTEST_SHARD_INDEX and GTEST_TOTAL_SHARDS (GoogleTest); TEST_SHARD_INDEX and TEST_TOTAL_SHARDS (Bazel; the file of
/// TEST_SHARD_STATUS_FILE is touched); CI_NODE_INDEX, from 1, and CI_NODE_TOTAL (GitLab); SLURM_ARRAY_TASK_ID and
/// SLURM_ARRAY_TASK_COUNT, from SLURM_ARRAY_TASK_MIN in SLURM_ARRAY_TASK_STEP; SLURM_PROCID and SLURM_NTASKS in a step
/// of srun (where SLURM_STEP_ID is set). UsageError for anything else, and for variables that say no part.
ShardChoice choose_shard(const std::string& text);

/// The rank of this process in a job of mpirun or srun, from 1, and how many there are: of OMPI_COMM_WORLD_RANK and
/// OMPI_COMM_WORLD_SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_NTASKS the first pair that is
/// set; without any it is the only one.
ShardChoice rank_of_job();
/// How many of the ranks run on this machine, as far as the job says: at most `ranks`. OMPI_COMM_WORLD_LOCAL_SIZE (Open
/// MPI), MPI_LOCALNRANKS or PMI_LOCAL_SIZE (MPICH); under srun SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE
/// ("2(x3),1": that of SLURM_NODEID), or SLURM_NTASKS_PER_NODE. UsageError for variables that say no number.
int ranks_of_this_machine(int ranks);

}  // namespace ampcheck::tools
