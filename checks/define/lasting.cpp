// SPDX-License-Identifier: Apache-2.0
#include "checks/define/lasting.h"

#include <mutex>
#include <set>

namespace ampcheck::checks {

namespace {

struct Lasting {
  std::mutex mutex;
  std::set<const OpDef*> ops;
};

Lasting& lasting() {
  static Lasting all;
  return all;
}

}  // namespace

void keep_for_good(const OpDef& op) {
  const std::lock_guard lock(lasting().mutex);
  lasting().ops.insert(&op);
}

bool is_kept_for_good(const OpDef& op) {
  if (find_op(op.signature.name) == &op) return true;
  const std::lock_guard lock(lasting().mutex);
  return lasting().ops.contains(&op);
}

}  // namespace ampcheck::checks
