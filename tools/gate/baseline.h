// SPDX-License-Identifier: Apache-2.0
// The accepted state of an op: a JSON file for each op in a folder under version control. Keys are sorted and a case is
// a block of its own, so that a change reads well as a diff; numbers are hexadecimal floats, which every machine reads
// back to the same bits. No bound stands in it: what rounding may do is derived anew in each run.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checks/run/profile.h"
#include "src/code.h"
#include "tools/report/foreign_file.h"

namespace ampcheck::tools {

/// A file that is no baseline, or not one of this schema: exit code 7.
struct BaselineError : ForeignFileError {
  using ForeignFileError::ForeignFileError;
};

/// A finding that is known and let through until a day.
struct Waiver {
  Code code = Code::none;
  std::string until, reason;  ///< "2026-12-31": the last day on which it holds
};

/// What a run found in an op that is not accepted yet.
struct PendingFinding {
  Code code = Code::none;
  std::int64_t cases = 0;
  std::string first;     ///< name of a case
  std::string smallest;  ///< name of the smallest case that fails alike, "" where none was found
  std::string cause;     ///< likely cause in words, "" if none is known
  /// Cases of which torch's default tolerances reject one of the worst elements. Structural findings are not compared.
  std::int64_t seen_by_allclose = 0;
};

struct StoredCase {
  std::string inputs;  ///< digest
  /// Digests of the tensors, by what computed them ("cpu-x86_64", "cuda-sm_90"): bits may differ between these.
  std::map<std::string, std::map<std::string, std::string>> bits;
  std::map<std::string, checks::TensorProfile> tensors;
};

/// What computed the numbers of a state.
struct Measured {
  std::string ampcheck;  ///< its version
  std::string compiler;  ///< of the kernels, "" if not known
  std::string cpu;
  std::string library;  ///< digest of a user's library
  std::string file;     ///< its name, without folders
};

/// A state that a person took over, and the largest error of each tensor over its cases, in ulps.
struct Acceptance {
  std::string on, reason;  ///< "2026-11-28"; "" of a state that nobody accepted
  std::string who;         ///< "Name <address>" as git knows them, or a login name
  std::string commit;      ///< that was checked out, "" without one
  std::map<std::string, double> largest;
};

struct Baseline {
  std::string op;
  std::string settings;  ///< which cases were asked for, in words
  Acceptance accepted;   ///< its `largest` follows from the cases
  Measured measured;
  std::vector<Acceptance> history;       ///< earlier accepted states, the oldest first
  std::vector<Waiver> waivers;           ///< by code
  std::vector<PendingFinding> findings;  ///< of a pending file alone
  std::map<std::string, StoredCase> cases;
};

/// The JSON of one op, and back. BaselineError "[where] what, got X, want Y".
nlohmann::json json_of(const Baseline& baseline);
Baseline baseline_from(const nlohmann::json& json, const std::string& where);

/// Sorted keys, an entry a line, lists of numbers and words on one line.
std::string diffable_text(const nlohmann::json& json);
/// Refuses double keys, more than 64 levels and more than 256 MB.
nlohmann::json read_json_file(const std::string& path);
/// The same of a text; `path` stands in messages.
nlohmann::json parse_json(const std::string& text, const std::string& path);

Baseline read_baseline(const std::string& path);
void write_baseline(const std::string& path, const Baseline& baseline);

/// DIR/softmax.json, DIR/softmax.json.pending. Characters that a file name should not have become %2F.
std::string baseline_path(const std::string& folder, const std::string& op);
std::string pending_path(const std::string& folder, const std::string& op);
/// Ops with a pending file in the folder, sorted.
std::vector<std::string> pending_ops(const std::string& folder);
/// Files of accepted states in the folder, sorted; what is in them was not looked at.
std::vector<std::string> baseline_paths(const std::string& folder);

}  // namespace ampcheck::tools
