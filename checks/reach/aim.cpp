// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/aim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <span>

#include "checks/reach/aim_target.h"
#include "src/extent.h"
#include "src/parallel.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kLargest = 512;  ///< elements of the largest input of a case that is looked at
constexpr std::size_t kMostAims = 8;    ///< sites of one op and storage type that are aimed at

bool small(const OpSignature& signature, const OpCall& call) {
  return std::all_of(signature.inputs.begin(), signature.inputs.end(),
                     [&](const TensorSpec& spec) { return !call.has(spec) || call.shape(spec).count() <= kLargest; });
}

/// What of a call decides which formula is recorded, apart from its extents.
std::string variant_of(const OpCall& call) {
  std::string out;
  for (const auto& [name, value] : call.attributes.all())
    out +=
        name + "=" +
        (std::holds_alternative<double>(value) ? number_text(std::get<double>(value)) : std::get<std::string>(value)) +
        ",";
  for (const std::string& name : call.absent) out += "-" + name;
  return out;
}

}  // namespace

std::size_t SiteCoverage::find(const Site& site, const OpCall& call) {
  const auto [at, is_new] = by_key_.try_emplace(site.key, sites_.size());
  if (is_new) sites_.push_back({site, call});
  return at->second;
}

void SiteCoverage::look(const OpDef& op, const OpCall& call) {
  if (op.forms.empty() || call.layout != "dense" || !small(op.signature, call)) return;
  const std::string variant = variant_of(call);
  if (done_.contains(variant)) return;
  Target target(op, call);
  bool all = true;
  std::optional<std::map<std::string, Interval>> intervals;
  for (const Site& site : sites_of(target.recording(), needed_nodes(target.recording()))) {
    Known& known = sites_[find(site, call)];
    if (!known.seen && site.kind != Site::Kind::term) known.seen = target.values().taken(site);
    if (!known.seen && site.kind == Site::Kind::term && target.finite()) {
      if (!intervals) intervals = target.intervals();
      known.seen = target.values().share(site, *intervals) > 1;
    }
    all &= known.seen;
  }
  if (all) done_.insert(variant);
}

namespace {

/// The call at a data regime; and the same in longer rows, where vectors and blocks have a tail.
void add_calls(const OpSignature& signature, OpCall call, const std::string& range, std::vector<OpCall>& out) {
  constexpr std::int64_t kLonger = 67;
  call.range = range;
  call.cotangent = "mixed";
  call.layout = "dense";
  out.push_back(call);
  for (const TensorSpec& spec : signature.inputs) {
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    if (symbols.empty() || !has_dim(signature, symbols.back())) continue;
    call.dims[symbols.back()] = kLonger;
    if (!signature.valid || signature.valid(call.dims, call.attributes)) out.push_back(call);
    return;
  }
}

/// Of a case that the reference cannot hold its own result says so.
void look_if_possible(SiteCoverage& seen, const OpDef& op, const OpCall& call) {
  try {
    seen.look(op, call);
  } catch (const std::exception&) {
  }
}

/// A site that no case reached, and where it was aimed at.
struct Unreached {
  std::size_t site;
  bool worth = false;
  Aim aim = {};
  std::exception_ptr error = {};
};

/// Calls work(one) for each, several at a time; what it throws stays with it.
void for_each_of(std::span<Unreached> all, const std::function<void(Unreached&)>& work) {
  parallel_for(std::ssize(all), 1, [&](std::int64_t begin, std::int64_t end) {
    for (Unreached& one : all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) try {
        work(one);
      } catch (const std::exception&) {
        one.error = std::current_exception();
      }
  });
}

void aim_at_kind(bool sides, SiteCoverage& seen, Aimed& out) {
  std::vector<Unreached> all;
  for (std::size_t i = 0; i < seen.sites().size(); ++i)
    if (!seen.sites()[i].seen && (seen.sites()[i].site.kind != Site::Kind::term) == sides) all.push_back({i});
  for_each_of(all, [&](Unreached& one) { one.worth = worth_aiming(*out.op, seen.sites()[one.site]); });
  std::erase_if(all, [](const Unreached& one) { return !one.worth && !one.error; });
  for_each_of(std::span(all).first(std::min(all.size(), kMostAims)), [&](Unreached& one) {
    if (!one.error) one.aim = aim_at(*out.op, seen.sites()[one.site]);
  });
  std::vector<OpCall> calls;
  for (std::size_t k = 0; k < all.size(); ++k) {
    Unreached& one = all[k];
    if (one.error) std::rethrow_exception(one.error);
    if (k >= kMostAims) {
      ++out.not_aimed;
      continue;
    }
    for (const std::string& range : one.aim.ranges)
      add_calls(out.op->signature, seen.sites()[one.site].at, range, calls);
    if (!one.aim.ranges.empty()) seen.saw(one.site);
    out.aims.push_back(std::move(one.aim));
  }
  for (const OpCall& call : calls) look_if_possible(seen, *out.op, call);
  out.calls.insert(out.calls.end(), calls.begin(), calls.end());
}

}  // namespace

namespace {

/// Calls work(k) for each of n, and goes on where the reference cannot hold one.
void for_each_possible(std::size_t n, const std::atomic<bool>* cancel, const std::function<void(std::size_t)>& work) {
  parallel_for(static_cast<std::int64_t>(n), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      if (cancel != nullptr && cancel->load()) return;
      try {
        work(k);
      } catch (const std::exception&) {
      }
    }
  });
}

}  // namespace

std::vector<Aimed> aimed_cases(const std::vector<Case>& cases, const std::atomic<bool>* cancel) {
  std::vector<Aimed> out;
  std::vector<std::vector<const Case*>> of;
  for (const Case& item : cases) {
    const auto same = [&](const Aimed& a) { return a.op == item.op && a.storage == item.call.storage; };
    const auto at = static_cast<std::size_t>(std::find_if(out.begin(), out.end(), same) - out.begin());
    if (at == out.size()) {
      out.push_back({item.op, item.call.storage});
      of.emplace_back();
    }
    of[at].push_back(&item);
  }
  for_each_possible(out.size(), cancel, [&](std::size_t k) {
    SiteCoverage seen;
    for (const Case* const item : of[k]) {
      if (cancel != nullptr && cancel->load()) return;
      look_if_possible(seen, *item->op, item->call);
    }
    aim_at_kind(true, seen, out[k]);
    aim_at_kind(false, seen, out[k]);
  });
  for (Aimed& one : out) {
    std::set<std::string> names;
    std::erase_if(one.calls, [&](const OpCall& call) { return !names.insert(call.str(one.op->signature)).second; });
  }
  return out;
}

namespace {

/// A primitive of an op's formula whose rounding no case shows, and the first case that has it.
struct Unseen {
  const OpDef* op;
  OpCall call;
  reference::Primitive primitive;
};

bool has(const OpDef& op, const OpCall& call, reference::Primitive primitive) {
  Target target(op, call);
  const std::vector<char> needed = needed_nodes(target.recording());
  for (std::size_t id = 0; id < needed.size(); ++id)
    if (needed[id] && target.recording().graph->node(static_cast<int>(id)).primitive == primitive) return true;
  return false;
}

std::vector<Unseen> unseen_roundings(const std::vector<Case>& cases, const std::map<std::string, Coverage>& coverage) {
  std::vector<Unseen> out;
  std::set<const OpDef*> done;
  for (const Case& first : cases) {
    const auto found = coverage.find(first.op->signature.name);
    if (!done.insert(first.op).second || found == coverage.end()) continue;
    for (int p = 0; p < reference::kPrimitives; ++p) {
      const auto primitive = static_cast<reference::Primitive>(p);
      if (!found->second.knows(reference::name(primitive)) ||
          found->second.share(reference::name(primitive)) >= kVisibleShare)
        continue;
      std::set<std::string> variants;
      for (const Case& item : cases) {
        if (item.op != first.op || item.call.layout != "dense" || !small(item.op->signature, item.call) ||
            !variants.insert(variant_of(item.call)).second)
          continue;
        if (!has(*item.op, item.call, primitive)) continue;
        out.push_back({item.op, item.call, primitive});
        break;
      }
    }
  }
  return out;
}

}  // namespace

std::vector<Aimed> aimed_at_roundings(const std::vector<Case>& cases, const std::map<std::string, Coverage>& coverage,
                                      const std::atomic<bool>* cancel) {
  const std::vector<Unseen> unseen = unseen_roundings(cases, coverage);
  std::vector<Aimed> out(unseen.size());
  for_each_possible(unseen.size(), cancel, [&](std::size_t k) {
    const Unseen& at = unseen[k];
    out[k].op = at.op;
    out[k].storage = at.call.storage;
    out[k].aims.push_back(aim_at_rounding(*at.op, at.call, at.primitive, kVisibleShare));
    for (const std::string& range : out[k].aims.front().ranges)
      add_calls(at.op->signature, at.call, range, out[k].calls);
  });
  // What was not found in one line an op.
  std::vector<Aimed> joined;
  for (Aimed& one : out) {
    if (one.op == nullptr) continue;
    const auto alike = std::find_if(joined.begin(), joined.end(), [&](const Aimed& a) {
      return a.op == one.op && a.storage == one.storage && a.calls.empty() && one.calls.empty();
    });
    if (alike == joined.end()) {
      joined.push_back(std::move(one));
      continue;
    }
    Aim& aim = alike->aims.front();
    aim.words += ", " + one.aims.front().words;
    aim.tried += one.aims.front().tried;
  }
  return joined;
}

namespace {

/// "x from 1235.5 to 1239.5" of a regime's name.
std::string range_words(const OpSignature& signature, const std::string& range) {
  std::string out;
  for (const AimedInput& aim : parse_aimed_range(signature, range))
    out += fmt::format("{}{} from {} to {}", out.empty() ? "" : " and ", aim.input, number_text(aim.low),
                       number_text(aim.high));
  return out;
}

std::string line_of(const OpDef& op, const Aim& aim) {
  const char* const what = aim.kind == Aim::Kind::side   ? "is never the case"
                           : aim.kind == Aim::Kind::term ? "is below the rounding of the rest"
                                                         : "makes less than 1 % of any interval";
  const std::string words = (aim.kind == Aim::Kind::rounding ? "the rounding of " : "") + aim.words;
  std::string where;
  for (const std::string& range : aim.ranges)
    where += (where.empty() ? "" : ", and ") + range_words(op.signature, range);
  if (!where.empty())
    return fmt::format("{}: {} {} in the usual cases; further cases have {}", op.signature.name, words, what, where);
  return fmt::format("{}: {} {} with all data that was tried{}", op.signature.name, words, what,
                     aim.kind == Aim::Kind::rounding ? "" : ", so it was not judged there");
}

}  // namespace

std::vector<std::string> aimed_notes(const std::vector<Aimed>& aimed, bool all) {
  struct Line {
    std::string text;
    std::vector<std::string> types;
    std::int64_t tried = 0;  ///< of what was not found: most in a type
  };
  std::vector<Line> lines;  // in the order of the cases; storage types together that have the same to say
  for (const Aimed& one : aimed)
    for (const Aim& aim : one.aims) {
      if (!all && !aim.ranges.empty()) continue;
      const std::string text = line_of(*one.op, aim);
      auto at = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.text == text; });
      if (at == lines.end()) at = lines.insert(at, {text, {}, 0});
      if (at->types.empty() || at->types.back() != name(one.storage)) at->types.push_back(name(one.storage));
      if (aim.ranges.empty()) at->tried = std::max(at->tried, aim.tried);
    }
  std::vector<std::string> out;
  for (const Line& line : lines)
    out.push_back(fmt::format(
        "{} ({}){}", line.text, fmt::join(line.types, " "),
        line.tried == 0 ? "" : fmt::format("; {} ranges of the inputs were tried besides the cases", line.tried)));
  for (const Aimed& one : aimed)
    if (one.not_aimed > 0)
      out.push_back(
          fmt::format("{}: {} more places of its formula that no case shows in {} were left: at most {} of a kind get "
                      "cases of their own",
                      one.op->signature.name, one.not_aimed, name(one.storage), kMostAims));
  return out;
}

}  // namespace ampcheck::checks
