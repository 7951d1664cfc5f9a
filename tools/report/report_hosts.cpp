// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Reports for hosts of code: SARIF, workflow commands of GitHub, code quality of GitLab. A case has no line of source
// of its own, so findings stand where the author describes the op, at the library or, of a built-in op, at its kernel.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/digest.h"
#include "tools/report/failing_cases.h"
#include "tools/report/json.h"
#include "tools/report/plain_text.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostSarif = 5000;  ///< results that GitHub keeps
constexpr std::size_t kMostGithub = 10;   ///< errors of a step that GitHub shows
constexpr std::size_t kMostText = 4000;   ///< bytes of one message

/// A path below the working folder as a relative one: a host knows files by their place in the repository.
std::string in_repository(const std::string& file) {
  std::error_code error;
  const std::filesystem::path path(file), here = std::filesystem::current_path(error);
  const std::filesystem::path relative = path.lexically_relative(here);
  return path.is_relative() || error || relative.empty() || *relative.begin() == ".." ? file : relative.string();
}

/// Where a reader begins to look: where the op is written, else its library, or the built-in kernel.
checks::SourceLine source_of(const RunFacts& facts, const std::string& op, const std::string& plugin) {
  if (const auto known = facts.sources.find(op); known != facts.sources.end())
    return {one_line(in_repository(known->second.file)), known->second.line};
  return {plugin.empty() ? "kernels/" + one_line(op.substr(0, op.find('.'))) + ".cu" : one_line(plugin), 1};
}
checks::SourceLine source_of(const RunFacts& facts, const CaseResult& result) {
  return source_of(facts, result.op, result.plugin);
}

/// The same finding of the same case, in whatever run.
std::string fingerprint(const std::string& name, const char* code) { return digest_of(name + "\n" + code).str(); }

std::string message(const CaseResult& result) {
  return shortened(fmt::format("{}: {}", one_line(result.name), one_line(short_reason(result))), kMostText);
}

/// A path as a relative URI.
std::string uri(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Json sarif_result(const std::string& rule, const std::string& text, const checks::SourceLine& at,
                  const std::string& logical, const std::string& print) {
  return {
      {"ruleId", rule},
      {"level", "error"},
      {"message", {{"text", text}}},
      {"locations",
       Json::array({{{"physicalLocation",
                      {{"artifactLocation", {{"uri", uri(at.file)}}}, {"region", {{"startLine", at.line}}}}},
                     {"logicalLocations", Json::array({{{"fullyQualifiedName", logical}, {"kind", "function"}}})}}})},
      {"partialFingerprints", {{"ampcheck/v1", print}}}};
}

Json sarif_rule(const std::string& id, const std::string& title, const std::string& help) {
  return {{"id", id}, {"shortDescription", {{"text", title}}}, {"help", {{"text", help}}}};
}

/// The part behind "::error": GitHub's escapes of a property, and of the message.
std::string github_escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : clean_lines(text)) {
    if (c == '%')
      out += "%25";
    else if (c == '\n')
      out += "%0A";
    else if (property && c == ':')
      out += "%3A";
    else if (property && c == ',')
      out += "%2C";
    else
      out += c;
  }
  return out;
}

std::string github_line(const checks::SourceLine& at, const std::string& title, const std::string& text,
                        const char* level = "error") {
  return fmt::format("::{} file={},line={},title={}::{}\n", level, github_escaped(at.file, true), at.line,
                     github_escaped(title, true), github_escaped(shortened(text, kMostText), false));
}

Json gitlab_issue(const std::string& what, const std::string& check, const checks::SourceLine& at,
                  const std::string& print) {
  return {{"description", what},
          {"check_name", check},
          {"fingerprint", print},
          {"severity", "major"},
          {"location", {{"path", at.file}, {"lines", {{"begin", at.line}}}}}};
}

constexpr const char* kGateRule = "gate";

}  // namespace

std::string sarif_report(const Report& report, const RunFacts& facts) {
  Json results = Json::array(), rules = Json::array();
  std::set<Code> codes;
  for (const CaseResult* result : failing_cases(report)) {
    if (results.size() == kMostSarif) break;
    codes.insert(result->code);
    results.push_back(sarif_result(name(result->code), message(*result), source_of(facts, *result),
                                   one_line(result->name), fingerprint(result->name, name(result->code))));
  }
  for (const Code code : codes)
    if (code != Code::none) rules.push_back(sarif_rule(name(code), text_of(code).title, text_of(code).remedy));
  bool gated = false;
  for (const GateLine& line : facts.gate) {
    if (!line.failed || results.size() == kMostSarif) continue;
    gated = true;
    results.push_back(sarif_result(kGateRule, shortened(one_line(line.op + ": " + line.text), kMostText),
                                   source_of(facts, line.op, line.plugin), one_line(line.op),
                                   fingerprint(line.op + "\n" + line.text, kGateRule)));
  }
  if (gated) rules.push_back(sarif_rule(kGateRule, "not as accepted", "ampcheck review shows what changed"));
  const Json driver = {{"name", "ampcheck"}, {"version", facts.build.version}, {"rules", rules}};
  return json_text({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                    {"version", "2.1.0"},
                    {"runs", Json::array({{{"tool", {{"driver", driver}}}, {"results", results}}})}});
}

std::string github_report(const Report& report, const RunFacts& facts) {
  std::vector<std::string> lines;
  for (const GateLine& line : facts.gate)
    if (line.failed || line.warns)
      lines.push_back(github_line(source_of(facts, line.op, line.plugin), "ampcheck gate " + line.op, line.text,
                                  line.failed ? "error" : "warning"));
  for (const CaseResult* result : failing_cases(report))
    lines.push_back(github_line(source_of(facts, *result),
                                fmt::format("{} {}", name(result->verdict), name(result->code)),
                                console_failure(*result, facts, {})));
  std::string out;
  const std::size_t shown = lines.size() > kMostGithub ? kMostGithub - 1 : lines.size();
  for (std::size_t i = 0; i < shown; ++i) out += lines[i];
  if (lines.size() > shown)
    out += github_line({"ampcheck"}, "ampcheck",
                       fmt::format("{} more findings: -o markdown:FILE has all of them", lines.size() - shown));
  return out;
}

std::string gitlab_report(const Report& report, const RunFacts& facts) {
  Json out = Json::array();
  for (const GateLine& line : facts.gate)
    if (line.failed)
      out.push_back(gitlab_issue(shortened(one_line(line.op + ": " + line.text), kMostText), kGateRule,
                                 source_of(facts, line.op, line.plugin),
                                 fingerprint(line.op + "\n" + line.text, kGateRule)));
  for (const CaseResult* result : failing_cases(report))
    out.push_back(gitlab_issue(message(*result), name(result->code), source_of(facts, *result),
                               fingerprint(result->name, name(result->code))));
  return json_text(out);
}

}  // namespace ampcheck::tools
