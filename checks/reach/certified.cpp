// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/certified.h"

#include <map>
#include <mutex>

#include "checks/define/lasting.h"

namespace ampcheck::checks {

std::shared_ptr<const reference::FormulaCertificate> certified(const OpDef& op) {
  using Shared = std::shared_ptr<const reference::FormulaCertificate>;
  const auto compute = [&] {
    return std::make_shared<const reference::FormulaCertificate>(
        reference::certify(op.signature, op.forms, reference::formula_variants(op.signature), 4, 1));
  };
  if (!is_kept_for_good(op)) return compute();
  static std::mutex mutex;
  static std::map<const OpDef*, Shared> known;
  {
    const std::lock_guard lock(mutex);
    if (const auto at = known.find(&op); at != known.end()) return at->second;
  }
  Shared out = compute();
  const std::lock_guard lock(mutex);
  return known[&op] = std::move(out);
}

}  // namespace ampcheck::checks
