// SPDX-License-Identifier: Apache-2.0
// Kernels of a library run in a process that knows their tensors and nothing else: neither what is expected of them,
// nor where the answer goes. The judge calls it as it would call the kernels.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/doors/loading.h"
#include "tools/choose/run_options.h"
#include "tools/report/exit_code.h"
#include "tools/workers/description.h"
#include "tools/workers/kernel_arena.h"
#include "tools/workers/kernel_clock.h"

namespace ampcheck::tools {

/// Which kernel of an op.
enum class KernelPass : std::uint8_t { forward, backward, jvp };

class KernelRunner {
 public:
  /// `silent`: what is printed on standard output is no part of an answer. `describes`: only to load the library and
  /// unload it.
  enum class Kind : std::uint8_t { heard, silent, describes };
  /// Starts this program with --runner LIBRARY, a silent one with its first call. `clock`: counts the time of the
  /// kernels; none: nobody asks. EnvironmentError if it cannot be started.
  explicit KernelRunner(std::string library, Kind kind = Kind::heard, KernelClock* clock = nullptr);
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;

  /// What the library is, once it is loaded. Throws what loading it threw; EnvironmentError if its process ended before
  /// it began to load the library; if it ended later, as call() does.
  const checks::OutsideDescription& description();
  /// Of one that describes: the library is unloaded. If that ended its process otherwise than by itself, this one ends
  /// in the same way.
  void unload();

  /// The ops with kernels that run there.
  const std::deque<checks::OpDef>& take_over(const std::vector<const checks::OpDef*>& ops);
  /// From now on the guarded tensors of this process lie in memory that it shares with that one. Tensors of other
  /// memory are copied for each call.
  void share_tensors();

  /// How often a call is to be made with the same tensors, and which of them it writes.
  struct Series {
    std::int64_t times = 1;
    std::vector<std::string> written = {};
  };
  /// Runs a kernel of the op in that place of the library's list, one at a time; how many calls of the series left the
  /// same bits. Throws what it threw. If its process ended, this one ends in the same way: whoever waits for it sees
  /// how.
  std::int64_t call(std::size_t op, KernelPass pass, const kernels::KernelCall& call, const Series& series);
  /// What is done before this process ends as that of a library did, so that whoever waits knows whose doing it is.
  static void before_ending_alike(std::function<void(const std::string& library)> what);
  /// Its process is another one from now on, and remembers nothing.
  void start_anew();
  /// It is another one before a kernel of another op is called.
  void distrust(std::size_t op);

 private:
  class Host;

  void start();
  void restart();
  void wait_until_up();
  void take_description();
  bool answers();
  bool has_answered() const;
  void wait_for_its_end();
  [[noreturn]] void end_as_it_did();

  std::string library_;
  Kind kind_ = Kind::heard;
  KernelClock* clock_ = nullptr;
  std::mutex mutex_;
  KernelArena arena_;
  std::deque<checks::OpDef> ops_;
  std::optional<std::size_t> distrusted_;  ///< the op whose work may still run
  pid_t process_ = 0;
  int status_ = 0;  ///< of its end
  int requests_ = -1, replies_ = -1;
  bool up_ = false;         ///< the process that runs now has begun to load the library
  bool described_ = false;  ///< the process that runs now has said what it loaded
  std::optional<Description> memory_;
  checks::OutsideDescription description_;
};

/// Whether the kernels of a library run apart from their judge: those of a CPU do. Those of a simulated GPU are no code
/// of this machine, and on a real one they do not see its memory.
bool kernels_run_apart(const std::string& library, Device device);
/// In the child (tools/workers/child.h) of a command that runs kernels many times over: from now on they run in a
/// process of their own, whose end is the child's. `ops`: all of the library; they become ops whose kernels do.
void take_kernels_apart(std::vector<const checks::OpDef*>& ops, const IsolationOptions& options,
                        Device device = Device::cpu);

/// In the child (tools/workers/child.h): for LoadingHooks::outside. Libraries whose kernels run apart are loaded by a
/// process that only describes them; nothing for the others.
std::optional<checks::OutsideDescription> describe_outside(const std::string& library);
/// For LoadingHooks::kernels: what describe_outside() loaded runs in a process of its own, whose end is the child's.
void run_kernels_outside(const std::string& library, std::vector<checks::OpDef>& ops);
/// At the end of the child: unloads what describe_outside() loaded.
void unload_outside();

/// The runner's main: `ampcheck --runner LIBRARY` describes the library on descriptor 4, reads calls from descriptor 3,
/// answers on 4, and shares the memory of descriptor 6. With a further word it only describes the library, and unloads
/// it.
ExitCode runner_main(int argc, char** argv);

}  // namespace ampcheck::tools
