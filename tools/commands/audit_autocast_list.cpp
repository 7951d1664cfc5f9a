// SPDX-License-Identifier: Apache-2.0
// `audit autocast LIST`: a user's list of ops against torch's, or two of torch's lists against one another.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "checks/autocast/op_list.h"
#include "src/file_bytes.h"
#include "src/suggestion.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/audit_autocast.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using namespace checks::autocast;

/// One side of a comparison.
struct Side {
  AutocastList list;
  std::optional<AutocastDevice> device;  ///< of torch's
  std::vector<std::string> plain;        ///< of a user's: ops without a class
  std::size_t count = 0;                 ///< ops that it names
};

Side side_of(const AuditOptions& options, const std::string& word) {
  Side out;
  if (auto named = named_list(word, options.autocast.torch, options.autocast.device)) {
    out.list = std::move(named->list);
    out.device = named->device;
    out.count = out.list.ops.size();
    return out;
  }
  OpList own = as_usage([&] { return read_op_list(read_bytes(word, "audit autocast"), word); });
  out.list = std::move(own.list);
  out.plain = std::move(own.plain);
  out.count = own.order.size();
  return out;
}

const char* relation_text(Relation relation) {
  switch (relation) {
    case Relation::same: return "the same";
    case Relation::alike: return "fp32 either way, unless dtype= says otherwise";
    case Relation::narrower: return "may run in 16 bits, and does not there";
    case Relation::wider: return "runs wider than there";
    case Relation::other: return "another rule";
  }
  return "";
}

/// What of an op another list, device or release says, and a name that may have been meant.
std::string hint(const std::string& op, const Side& there, CastPolicy policy) {
  if (policy != CastPolicy::unlisted || there.list.lists(op) || !there.device) return "";
  std::vector<std::string> names;
  for (const auto& [known, of] : there.list.ops) names.push_back(known.substr(0, known.find('.')));
  return did_you_mean(op, names);
}

struct Comparison {
  std::vector<Difference> rows;
  std::vector<Difference> plain;  ///< `here` is unlisted: their class is asked
  std::vector<std::string> banned;
  bool differs = false;
};

Comparison compare(const Side& here, const Side& there) {
  Comparison out;
  out.rows = differences(here.list, there.list, here.device && there.device);
  for (const std::string& op : here.plain) out.plain.push_back({op, CastPolicy::unlisted, there.list.policy(op), {}});
  for (const Difference& d : out.rows) {
    out.differs |= d.relation != Relation::alike;
    if (!here.device && d.there == CastPolicy::banned) out.banned.push_back(d.op);
  }
  for (const Difference& d : out.plain)
    if (d.there == CastPolicy::banned) out.banned.push_back(d.op);
  return out;
}

std::string text_of(const Side& here, const Side& there, const Comparison& found) {
  const Style style = stdout_style();
  std::size_t width = 4;
  for (const auto* const list : {&found.rows, &found.plain})
    for (const Difference& d : *list) width = std::max(width, d.op.size());
  std::string out = fmt::format("{}{} against {}{}: {} ops, {} with another class\n", style.bold, here.list.title,
                                there.list.title, style.reset, here.count, found.rows.size());
  if (!found.rows.empty())
    out += fmt::format("  {}{:<{}}  {:<19} {:<19}{}\n", style.bold, "op", width, "here", "there", style.reset);
  for (const Difference& d : found.rows)
    out += fmt::format("  {:<{}}  {:<19} {:<19} {}{}\n", d.op, width, name(d.here), name(d.there),
                       relation_text(d.relation), hint(d.op, there, d.there));
  if (!found.plain.empty()) {
    const AutocastDevice other = there.device == AutocastDevice::cpu ? AutocastDevice::cuda : AutocastDevice::cpu;
    const AutocastList elsewhere = autocast_list("", other);
    out += fmt::format("{}  {}{:<{}}  {:<19} {}{}\n", found.rows.empty() ? "" : "\n", style.bold, "op", width, "there",
                       elsewhere.title, style.reset);
    for (const Difference& d : found.plain)
      out += fmt::format("  {:<{}}  {:<19} {}{}\n", d.op, width, name(d.there), name(elsewhere.policy(d.op)),
                         hint(d.op, there, d.there));
  }
  for (const std::string& op : found.banned)
    out += fmt::format("{}{}{} is banned in a region: call {}\n", style.red, op, style.reset, safe_form(op));
  return out;
}

Json json_of(const Side& here, const Side& there, const Comparison& found) {
  Json out = {{"schema", "ampcheck.audit_autocast_list/1"},
              {"here", here.list.title},
              {"there", there.list.title},
              {"passed", !found.differs && found.banned.empty()},
              {"ops", here.count},
              {"differences", Json::array()},
              {"asked", Json::array()},
              {"banned", found.banned}};
  for (const Difference& d : found.rows)
    out["differences"].push_back(
        {{"op", d.op}, {"here", name(d.here)}, {"there", name(d.there)}, {"relation", name(d.relation)}});
  for (const Difference& d : found.plain) out["asked"].push_back({{"op", d.op}, {"there", name(d.there)}});
  return out;
}

}  // namespace

ExitCode audit_op_lists(const AuditOptions& options, const std::vector<std::string>& words) {
  const Side here = side_of(options, words.front());
  Side there;
  if (words.size() == 2) {
    there = side_of(options, words.back());
    if (!there.plain.empty())
      throw UsageError("[audit autocast] '" + words.back() + "', got an op without a class (" + there.plain.front() +
                       "), want lines of an op and its class, to hold the other list against");
  } else {
    there.device = here.device.value_or(list_device("--device", options.autocast.device));
    there.list = here.device ? autocast_list("", *there.device) : torch_list(options.autocast.torch, *there.device);
  }
  const Comparison found = compare(here, there);
  write_stdout(options.json ? json_text(json_of(here, there, found)) : text_of(here, there, found));
  return found.differs || !found.banned.empty() ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
