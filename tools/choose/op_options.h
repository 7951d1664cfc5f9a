// SPDX-License-Identifier: Apache-2.0
// Options of the commands about ops: list, check, replay, certify, compare, contract.
#pragma once

#include <string>
#include <vector>

#include "tools/choose/case_options.h"
#include "tools/choose/dump_options.h"
#include "tools/choose/report_formats.h"
#include "tools/choose/run_options.h"

namespace ampcheck::tools {

struct ListOptions : CaseOptions {
  bool cases = false;    ///< case names
  bool planted = false;  ///< the planted faults and correct variants
  bool wanting = false;  ///< what ops still lack
};
void add_options(CLI::App* command, ListOptions& o);

struct CheckOptions : CaseOptions, RunningOptions, DumpOptions, CoresOptions {
  std::vector<ReportFile> reports = {};
  std::string run_file = {};      ///< file that keeps every result, to go on with or to merge
  int shard = 1, shards = 1;      ///< of the cases only this part
  std::string shard_origin = {};  ///< the variables that say which; empty: the command line
  bool ranks = false;             ///< --engine mpi: a part of the cases at a time, beside other ranks of one job
  bool silent = false;            ///< writes no report: a part that somebody else reports
  bool no_times = false;          ///< times are 0 in every report, so that equal results are equal files
  /// The command line without what changes no result, as merge runs it again.
  std::vector<std::string> arguments = {};
  std::string journal = {};  ///< file to which each case is written before and after it runs
  bool verbose = false;
};
void add_options(CLI::App* command, CheckOptions& o);

/// `ampcheck merge`: the parts of one check.
struct MergeOptions : CommonOptions {
  std::vector<std::string> files = {};
  std::vector<ReportFile> reports = {};
  int jobs = 0;
  bool verbose = false, no_times = false;
};
void add_options(CLI::App* command, MergeOptions& o);

struct ReplayOptions : CaseOptions, RunningOptions, CoresOptions {
  std::string save = {};  ///< folder, .safetensors or .npz file for the tensors
};
void add_options(CLI::App* command, ReplayOptions& o);

struct CertifyOptions : OpOptions {
  int samples = 8;  ///< coordinates per input and form
  std::uint64_t seed = 1;
};
void add_options(CLI::App* command, CertifyOptions& o);

/// Two libraries first among the words.
struct CompareOptions : CaseOptions, RunningOptions {};
void add_options(CLI::App* command, CompareOptions& o);

struct ContractOptions : OpOptions, IsolationOptions, CoresOptions {
  std::vector<Dtype> dtypes = {};  ///< empty: all of the op's contract
  std::uint64_t seed = 1;
};
void add_options(CLI::App* command, ContractOptions& o);

}  // namespace ampcheck::tools
