// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/op_list.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/suggestion.h"
#include "src/toml_file.h"

namespace ampcheck::checks::autocast {

namespace {

constexpr std::array<std::pair<std::string_view, CastPolicy>, 13> kWords = {
    {{"lower_precision_fp", CastPolicy::lower_precision_fp},
     {"fp32", CastPolicy::fp32},
     {"fp32_set_opt_dtype", CastPolicy::fp32_set_opt_dtype},
     {"fp32_append_dtype", CastPolicy::fp32_append_dtype},
     {"promote", CastPolicy::promote},
     {"banned", CastPolicy::banned},
     {"unlisted", CastPolicy::unlisted},
     {"low", CastPolicy::lower_precision_fp},
     {"fp16", CastPolicy::lower_precision_fp},
     {"bf16", CastPolicy::lower_precision_fp},
     {"float32", CastPolicy::fp32},
     {"widest", CastPolicy::promote},
     {"none", CastPolicy::unlisted}}};

std::vector<std::string> class_words() {
  std::vector<std::string> out;
  for (const auto& [word, policy] : kWords) out.emplace_back(word);
  return out;
}

std::optional<CastPolicy> class_of(std::string_view word) {
  for (const auto& [known, policy] : kWords)
    if (word == known) return policy;
  return std::nullopt;
}

std::string_view without_prefix(std::string_view op) {
  for (const std::string_view prefix : {"aten::", "torch.ops.aten.", "torch.nn.functional.", "torch.", "F."})
    if (op.starts_with(prefix)) op.remove_prefix(prefix.size());
  return op;
}

bool is_op_name(std::string_view op) {
  return !op.empty() && std::ranges::all_of(op, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& path) : text_(text), path_(path) { out_.list.title = path; }

  OpList read() {
    if (path_.ends_with(".toml"))
      read_toml();
    else
      read_lines();
    if (out_.order.empty()) throw Error("[" + path_ + "] ops, got none, want lines of an op and its class");
    for (const std::string& op : out_.order)
      if (const std::optional<CastPolicy> policy = classes_.at(op))
        out_.list.ops[op] = *policy;
      else
        out_.plain.push_back(op);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw Error("[" + path_ + ":" + std::to_string(line) + "] " + what);
  }

  void add(int line, std::string_view word, std::optional<CastPolicy> policy) {
    const std::string op(without_prefix(word));
    if (!is_op_name(op)) fail(line, "op, got " + quoted_text(word) + ", want a name such as softmax or softmax.int");
    const auto [known, fresh] = classes_.try_emplace(op, policy);
    if (fresh) out_.order.push_back(op);
    if (!policy) return;
    if (known->second && *known->second != *policy)
      fail(line, "class of " + op + ", got " + ampcheck::name(*policy) + " after " + ampcheck::name(*known->second) +
                     ", want one class");
    known->second = policy;
  }

  CastPolicy policy(int line, std::string_view word) const {
    const std::optional<CastPolicy> policy = class_of(word);
    if (!policy)
      fail(line, "class, got " + quoted_text(word) + did_you_mean(word, class_words()) +
                     ", want lower_precision_fp, fp32, fp32_set_opt_dtype, fp32_append_dtype, promote, banned or "
                     "unlisted");
    return *policy;
  }

  void read_toml() {
    const TomlFile file{std::string(text_), path_};
    for (const TomlEntry& entry : file.root().entries) {
      const CastPolicy of = policy(entry.place.line, entry.key);
      if (entry.value.kind != TomlNode::Kind::array)
        file.fail(entry.value.place, entry.key + ", got " + kind_name(entry.value.kind) + ", want an array of ops");
      for (const TomlEntry& op : entry.value.entries) {
        if (op.value.kind != TomlNode::Kind::text)
          file.fail(op.value.place, "op, got " + std::string(kind_name(op.value.kind)) + ", want a string");
        add(op.value.place.line, op.value.text, of);
      }
    }
  }

  void read_lines() {
    std::string_view rest = text_;
    for (int line = 1; !rest.empty(); ++line) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      read_line(line, rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }

  void read_line(int line, std::string_view text) {
    text = text.substr(0, text.find('#'));
    std::vector<std::string_view> words;
    while (!text.empty()) {
      const std::size_t begin = text.find_first_not_of(" \t\r,;");
      if (begin == std::string_view::npos) break;
      text.remove_prefix(begin);
      const std::size_t end = std::min(text.find_first_of(" \t\r,;"), text.size());
      words.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    if (words.empty() || (out_.order.empty() && words == std::vector<std::string_view>{"op", "class"})) return;
    if (words.size() > 2) fail(line, "line, got " + quoted_text(words[2]) + " behind the class, want 'op class'");
    add(line, words[0], words.size() == 2 ? std::optional(policy(line, words[1])) : std::nullopt);
  }

  std::string_view text_;
  const std::string& path_;
  std::map<std::string, std::optional<CastPolicy>> classes_;
  OpList out_;
};

bool computes_in_fp32(CastPolicy policy) {
  return policy == CastPolicy::fp32 || policy == CastPolicy::fp32_set_opt_dtype ||
         policy == CastPolicy::fp32_append_dtype;
}

}  // namespace

OpList read_op_list(std::string_view text, const std::string& path) { return Reader(text, path).read(); }

const char* name(Relation relation) {
  constexpr const char* kNames[] = {"same", "alike", "narrower", "wider", "other"};
  return kNames[static_cast<std::size_t>(relation)];
}

Relation relation(CastPolicy here, CastPolicy there) {
  if (here == there) return Relation::same;
  if (computes_in_fp32(here) && computes_in_fp32(there)) return Relation::alike;
  if (here == CastPolicy::banned || there == CastPolicy::banned) return Relation::other;
  const auto width = [](CastPolicy policy) {  // unlisted and promote take what they are handed
    return computes_in_fp32(policy) ? 2 : policy == CastPolicy::lower_precision_fp ? 0 : 1;
  };
  if (width(here) == width(there)) return Relation::other;
  return width(here) < width(there) ? Relation::narrower : Relation::wider;
}

std::vector<Difference> differences(const AutocastList& here, const AutocastList& there, bool both) {
  std::set<std::string> ops;
  for (const auto& [op, policy] : here.ops) ops.insert(op);
  if (both)
    for (const auto& [op, policy] : there.ops) ops.insert(op);
  std::vector<Difference> out;
  for (const std::string& op : ops) {
    const CastPolicy a = here.policy(op), b = there.policy(op);
    if (a != b) out.push_back({op, a, b, relation(a, b)});
  }
  return out;
}

}  // namespace ampcheck::checks::autocast
