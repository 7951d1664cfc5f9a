// SPDX-License-Identifier: Apache-2.0
// `ampcheck autocast lists`: which ops run in 16 bits, in fp32 or as they are.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/error.h"
#include "src/op_call.h"
#include "src/suggestion.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/autocast_lists.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

constexpr std::array kShown = {CastPolicy::lower_precision_fp, CastPolicy::fp32,    CastPolicy::fp32_set_opt_dtype,
                               CastPolicy::fp32_append_dtype,  CastPolicy::promote, CastPolicy::banned};
constexpr std::size_t kWidth = 100;

/// Of a class the operators that one of the patterns names.
std::vector<std::string_view> chosen(const AutocastList& list, CastPolicy policy,
                                     const std::vector<std::string>& patterns) {
  std::vector<std::string_view> out = list.of(policy);
  if (!patterns.empty())
    std::erase_if(out, [&](std::string_view op) {
      return std::ranges::none_of(patterns, [&](const std::string& pattern) {
        return matches(pattern, op) || matches(pattern, op.substr(0, op.find('.')));
      });
    });
  return out;
}

std::string wrapped(const std::vector<std::string_view>& words) {
  std::string out, line;
  for (const std::string_view word : words) {
    if (!line.empty() && line.size() + word.size() + 5 > kWidth) {
      out += "    " + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  return out + "    " + line + "\n";
}

std::string text_of(const AutocastList& list, AutocastDevice device, const std::vector<std::string>& patterns) {
  const Style style = stdout_style();
  std::string out = fmt::format("{}{}{}: {} operators are listed; a region without a dtype is {}\n", style.bold,
                                list.title, style.reset, list.ops.size(), name(default_autocast_dtype(device)));
  for (const CastPolicy policy : kShown) {
    const auto ops = chosen(list, policy, patterns);
    if (!ops.empty())
      out += fmt::format("\n  {}{}{} ({}): {}\n{}", style.bold, name(policy), style.reset, ops.size(), rule_of(policy),
                         wrapped(ops));
  }
  out += "\n  Every other op is unlisted: it runs in the dtypes that it is handed.\n";
  for (const std::string_view op : chosen(list, CastPolicy::banned, patterns))
    out += fmt::format("  In place of {}: {}.\n", op, safe_form(op));
  return out;
}

Json json_of(const AutocastList& list, AutocastDevice device, const std::vector<std::string>& patterns) {
  Json out = {{"schema", "ampcheck.autocast_lists/1"},
              {"title", list.title},
              {"device", name(device)},
              {"default_dtype", name(default_autocast_dtype(device))},
              {"releases", Json::array()},
              {"classes", Json::array()}};
  for (const std::string_view release : autocast_releases(device)) out["releases"].push_back(release);
  for (const CastPolicy policy : kShown)
    out["classes"].push_back(
        {{"class", name(policy)}, {"rule", rule_of(policy)}, {"ops", chosen(list, policy, patterns)}});
  return out;
}

}  // namespace

AutocastDevice list_device(const std::string& flag, const std::string& word) {
  constexpr std::array kDevices = {AutocastDevice::cuda, AutocastDevice::cpu, AutocastDevice::xpu, AutocastDevice::mtia,
                                   AutocastDevice::maia};
  std::vector<std::string> names;
  std::string all;
  for (const AutocastDevice device : kDevices) {
    if (word == name(device) || word.empty()) return device;
    names.emplace_back(name(device));
    all += (all.empty() ? "" : ", ") + names.back();
  }
  throw UsageError("[" + flag + "] got '" + word + "'" + did_you_mean(word, names) + ", want " + all);
}

AutocastList torch_list(const std::string& release, AutocastDevice device) {
  return as_usage([&] { return autocast_list(release, device); });
}

std::optional<NamedList> named_list(const std::string& word, const std::string& release, const std::string& device) {
  const auto is_release = [](std::string_view text) {
    return !text.empty() && text.front() >= '0' && text.front() <= '9' &&
           text.find_first_not_of("0123456789.") == std::string_view::npos;
  };
  const std::size_t slash = word.find('/');
  const std::string first = word.substr(0, slash);
  if (slash != std::string::npos && !is_release(first)) return std::nullopt;
  const bool is_device = [&] {
    for (int i = 0; i < kAutocastDevices; ++i)
      if (word == name(static_cast<AutocastDevice>(i))) return true;
    return false;
  }();
  if (slash == std::string::npos && !is_device && !is_release(word)) return std::nullopt;
  const std::string of = slash != std::string::npos ? word.substr(slash + 1) : is_device ? word : device;
  NamedList out;
  out.device = list_device("audit autocast", of);
  out.list = torch_list(is_device ? release : first, out.device);
  return out;
}

ExitCode autocast_command(const AutocastListsOptions& options) {
  if (options.words.front() != "lists")
    throw UsageError("[autocast] got '" + options.words.front() + "'" + did_you_mean(options.words.front(), {"lists"}) +
                     ", want lists (ampcheck audit autocast holds nets against them)");
  const AutocastDevice device = list_device("--device", options.device);
  const AutocastList list = torch_list(options.torch, device);
  const std::vector<std::string> patterns(options.words.begin() + 1, options.words.end());
  const bool any =
      std::ranges::any_of(kShown, [&](CastPolicy policy) { return !chosen(list, policy, patterns).empty(); });
  if (!any) {
    write_stderr(fmt::format("ampcheck: no op of {} has such a name: it is unlisted, and runs in what it is handed\n",
                             list.title));
    return ExitCode::nothing_ran;
  }
  write_stdout(options.json ? json_text(json_of(list, device, patterns)) : text_of(list, device, patterns));
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
