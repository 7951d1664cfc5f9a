// SPDX-License-Identifier: Apache-2.0
// A scaler or training loop in a shared library, in a process of its own: it holds nothing of what judges and reports,
// and what it does to its process is a finding.
#pragma once

#include <memory>
#include <string>

#include "checks/scaler/calls.h"
#include "checks/scaler/loop.h"
#include "src/error.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// The library ended its process, or does not answer.
struct LibraryEnded : Error {
  using Error::Error;
};

struct AuditedLibrary {
  std::string path;
  double timeout = 60;  ///< seconds that it may take to be loaded, for a sequence of calls, and to end
  std::string program = "/proc/self/exe";  ///< whose process it is: this program, or `ampcheck`
};

/// As checks::scaler::library_scaler and library_loop, which the process calls. They throw LibraryEnded besides. The
/// library is unloaded with the object; `unload` does it before, and says whether it went well.
class ApartSubject : public checks::scaler::Subject {
 public:
  virtual void unload() = 0;
};
class ApartLoop : public checks::scaler::Loop {
 public:
  virtual void unload() = 0;
};
std::unique_ptr<ApartSubject> scaler_apart(const AuditedLibrary& library);
std::unique_ptr<ApartLoop> loop_apart(const AuditedLibrary& library);

/// The process: `ampcheck --audited scaler|loop LIBRARY` reads messages from descriptor 3 and answers on 4.
ExitCode audited_main(int argc, char** argv);

}  // namespace ampcheck::tools
