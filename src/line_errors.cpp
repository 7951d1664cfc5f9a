// SPDX-License-Identifier: Apache-2.0
#include "src/line_errors.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

namespace ampcheck {

namespace {
std::atomic<bool> wanted_here{false};
thread_local std::set<std::string> followed;
thread_local std::vector<LineErrors> kept;
}  // namespace

const char* LineErrors::lost_words() const {
  constexpr const char* kWords[] = {"rounding", "cancellation", "overflow", "underflow"};
  return kWords[std::max_element(lost_by.begin(), lost_by.end()) - lost_by.begin()];
}

void LineErrors::add(const LineErrors& other) {
  results += other.results;
  local_ulp = std::max(local_ulp, other.local_ulp);
  local = std::max(local, other.local);
  carried_ulp = std::max(carried_ulp, other.carried_ulp);
  carried = std::max(carried, other.carried);
  cancelled_bits = std::max(cancelled_bits, other.cancelled_bits);
  nans += other.nans;
  infinities += other.infinities;
  underflows += other.underflows;
  subnormals += other.subnormals;
  for (std::size_t i = 0; i < lost_by.size(); ++i) lost_by[i] += other.lost_by[i];
}

void follow_lines(bool wanted) { wanted_here = wanted; }
bool follows_lines() { return wanted_here; }

bool wants_line_errors(const std::string& kernel) { return wanted_here && followed.insert(kernel).second; }
void keep_line_errors(const std::vector<LineErrors>& lines) { kept.insert(kept.end(), lines.begin(), lines.end()); }
std::vector<LineErrors> take_line_errors() { return std::exchange(kept, {}); }
void forget_line_errors() {
  followed.clear();
  kept.clear();
}

}  // namespace ampcheck
