// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/train_audit.h"

#include <algorithm>
#include <mutex>

#include "checks/audit/train_parts.h"
#include "checks/case/options.h"
#include "src/parallel.h"
#include "src/thread_scope.h"

namespace ampcheck::checks::train_audit {

std::vector<Trial> audit(const Options& options) {
  const ThreadScope scope(options.jobs);
  std::vector<Work> works = kernel_works(options);
  if (options.patterns.empty()) {
    for (Work& work : step_works(options.quick)) works.push_back(std::move(work));
    for (Work& work : healthy_works(options.quick)) works.push_back(std::move(work));
  }
  std::vector<std::vector<Trial>> trials(works.size());
  std::mutex mutex;
  std::size_t done = 0;
  parallel_for(std::ssize(works), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      if (options.cancel != nullptr && options.cancel->load()) continue;
      trials[k] = works[k].run();
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, works.size(), works[k].name);
    }
  });
  std::vector<Trial> out;
  for (std::vector<Trial>& some : trials)
    for (Trial& trial : some) out.push_back(std::move(trial));
  return out;
}

Score score(const std::vector<Trial>& trials, Part part) {
  Score out;
  for (const Trial& t : trials) {
    if (t.part != part || (part == Part::kernel && !t.shows)) continue;
    ++out.trials;
    out.found += t.found;
    out.named += t.named;
    out.right_class += t.right_class;
  }
  return out;
}

}  // namespace ampcheck::checks::train_audit
