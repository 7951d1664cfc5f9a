// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/policy_check.h"

#include <algorithm>
#include <array>

#include "src/error.h"

namespace ampcheck::checks::autocast {

namespace {

constexpr PolicyCheck kChecks[] = {
    {"A1", "classes", "has every op the class that the list gives it?"},
    {"A2", "casts", "does every op take and give the dtypes of its class, bit for bit as cast by hand?"},
    {"A3", "results in 16 bits",
     "are they finite and as exact as one rounding, of unlisted sums and exponentials too?"},
    {"A4", "narrowing", "does no cast to fewer bits lose finite numbers?"},
    {"A5", "exempt arguments", "are fp64 and integer arguments left as they are?"},
    {"A6", "bypass", "do in-place and out= calls and an explicit dtype= bypass autocast?"},
    {"A7", "banned ops", "is a banned op refused?"},
    {"A8", "gradients at casts", "does no gradient vanish or overflow where it is cast to 16 bits?"},
    {"A9", "regions", "do regions nest, end and restore what was before, on every thread?"},
    {"A10", "cache", "does a cached cast have the weight's value, its dtype and its gradient?"},
    {"A11", "custom ops", "do custom_fwd and custom_bwd cast and switch as they say?"},
    {"A12", "other device", "do the ops have the same class on the other device?"},
    {"A13", "gradients", "are low-precision gradients those of the formula at the rounded inputs?"},
    {"A14", "releases", "do the ops have the same class in all releases that are known?"},
};

/// The failure of an earlier one explains a later one's.
constexpr std::array<std::string_view, 14> kExplains = {"A7",  "A1", "A2", "A9", "A5",  "A6",  "A10",
                                                        "A11", "A4", "A3", "A8", "A13", "A14", "A12"};

}  // namespace

std::span<const PolicyCheck> policy_checks() { return kChecks; }

Results::Results() {
  for (const PolicyCheck& check : kChecks) all_.push_back({.check = &check, .says = "", .places = {}});
}

std::size_t Results::place(std::string_view code) {
  const auto found = std::ranges::find(kChecks, code, [](const PolicyCheck& c) { return std::string_view(c.code); });
  if (found == std::end(kChecks)) throw Error("[autocast] check, got '" + std::string(code) + "', want A1 to A14");
  return static_cast<std::size_t>(found - std::begin(kChecks));
}

void Results::add(std::string_view code, Outcome outcome, std::string says, std::vector<std::string> places) {
  const auto rank = [](Outcome o) {
    return o == Outcome::failed ? 3 : o == Outcome::weak ? 2 : o == Outcome::passed ? 1 : 0;
  };
  PolicyResult& result = at(code);
  if (rank(outcome) < rank(result.outcome)) return;
  if (outcome == result.outcome && !result.says.empty()) {
    for (std::string& place : places)
      if (std::ranges::find(result.places, place) == result.places.end()) result.places.push_back(std::move(place));
    return;
  }
  result.outcome = outcome;
  result.says = std::move(says);
  result.places = std::move(places);
}

void Results::add(const Results& other) {
  for (const PolicyResult& r : other.all_)
    if (r.outcome == Outcome::failed)
      add(r.check->code, r.outcome, r.says, r.places);
    else if (r.outcome != Outcome::not_asked)
      add(r.check->code, Outcome::passed);
}

int Results::count(Outcome outcome) const {
  return static_cast<int>(std::ranges::count_if(all_, [&](const PolicyResult& r) { return r.outcome == outcome; }));
}

const PolicyResult* Results::headline() const {
  for (const std::string_view code : kExplains)
    if (at(code).outcome == Outcome::failed) return &at(code);
  return nullptr;
}

}  // namespace ampcheck::checks::autocast
