// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/file_bytes.h"
#include "tools/gate/dates.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using checks::TensorProfile;
using nlohmann::json;

constexpr const char* kSchema = "ampcheck.baseline/1";

json json_of(const std::map<int, std::int64_t>& histogram) {
  json out = json::object();
  for (const auto& [exponent, count] : histogram) out[fmt::format("2^{}", exponent)] = count;
  return out;
}

json json_of(const TensorProfile& t) {
  json out = {{"elements", t.elements},
              {"open", t.open},
              {"not_finite", t.not_finite},
              {"max", hex_float(t.max)},
              {"p9999", hex_float(t.p9999)},
              {"p99", hex_float(t.p99)},
              {"rms", hex_float(t.rms)},
              {"bias", hex_float(t.bias)},
              {"histogram", json_of(t.histogram)},
              {"worst", json::array()}};
  for (const TensorProfile::Worst& w : t.worst)
    out["worst"].push_back(
        fmt::format("{} got 0x{:x} want 0x{:x} off by {}", w.index, w.got, w.want, hex_float(w.ulp)));
  return out;
}

/// Of texts those that say something.
json json_of(const std::vector<std::pair<const char*, std::string>>& texts) {
  json out = json::object();
  for (const auto& [key, text] : texts)
    if (!text.empty()) out[key] = text;
  return out;
}

json json_of(const Acceptance& a) {
  json out = json_of({{"on", a.on}, {"reason", a.reason}, {"who", a.who}, {"commit", a.commit}});
  for (const auto& [tensor, ulp] : a.largest) out["largest"][tensor] = hex_float(ulp);
  return out;
}

/// Reads fields, each with its type: a file of another program or hand is told what is wrong in it.
class Fields {
 public:
  Fields(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail("", "an object");
  }
  bool has(const char* key) const { return value_.contains(key); }
  Fields object(const char* key) const {
    static const json kNone = json::object();
    return Fields(has(key) ? value_.at(key) : kNone, where_ + ": " + key);
  }
  const json& list(const char* key) const {
    static const json kNone = json::array();
    if (!has(key)) return kNone;
    if (!value_.at(key).is_array()) fail(key, "a list");
    return value_.at(key);
  }
  std::string text(const char* key) const {
    if (!has(key) || !value_.at(key).is_string()) fail(key, "text");
    return value_.at(key).get<std::string>();
  }
  std::string text_or_none(const char* key) const { return has(key) ? text(key) : ""; }
  std::int64_t whole(const char* key) const {
    if (!has(key) || !value_.at(key).is_number_integer()) fail(key, "a whole number");
    return value_.at(key).get<std::int64_t>();
  }
  double number(const char* key) const {
    const auto value = parse_number(text(key));
    if (!value) fail(key, "a hexadecimal float, as 0x1.8p-3");
    return *value;
  }
  const json& value() const { return value_; }
  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& key, const std::string& wanted) const {
    std::string got = value_.is_object() && !key.empty() ? (has(key.c_str()) ? value_.at(key).dump() : "nothing")
                                                         : std::string(value_.type_name());
    throw BaselineError(
        fmt::format("[{}] {}{}got {}, want {}", where_, key, key.empty() ? "" : ", ", quoted_text(got), wanted));
  }

 private:
  const json& value_;
  std::string where_;
};

std::map<int, std::int64_t> histogram_from(const Fields& f) {
  std::map<int, std::int64_t> out;
  for (const auto& [key, count] : f.value().items()) {
    const auto exponent = key.starts_with("2^") ? parse_whole(key.substr(2)) : std::nullopt;
    if (!exponent || *exponent < -4096 || *exponent > 4096 || !count.is_number_integer() ||
        count.get<std::int64_t>() < 0)
      f.fail(key, "a count at 2^k");
    out[static_cast<int>(*exponent)] = count.get<std::int64_t>();
  }
  return out;
}

TensorProfile tensor_from(const Fields& f) {
  TensorProfile out;
  out.elements = f.whole("elements");
  out.open = f.whole("open");
  out.not_finite = f.whole("not_finite");
  out.max = f.number("max");
  out.p9999 = f.number("p9999");
  out.p99 = f.number("p99");
  out.rms = f.number("rms");
  out.bias = f.number("bias");
  out.histogram = histogram_from(f.object("histogram"));
  return out;  // the worst elements are for readers
}

std::map<std::string, std::string> digests_from(const Fields& f) {
  std::map<std::string, std::string> out;
  for (const auto& [tensor, digest] : f.value().items()) out[tensor] = f.text(tensor.c_str());
  return out;
}

StoredCase case_from(const Fields& f) {
  StoredCase out;
  out.inputs = f.text("inputs");
  const Fields bits = f.object("bits"), tensors = f.object("tensors");
  for (const auto& [arch, digests] : bits.value().items()) out.bits[arch] = digests_from(bits.object(arch.c_str()));
  for (const auto& [tensor, profile] : tensors.value().items())
    out.tensors[tensor] = tensor_from(tensors.object(tensor.c_str()));
  return out;
}

Acceptance acceptance_from(const Fields& f) {
  Acceptance out{f.text("on"), f.text("reason"), f.text_or_none("who"), f.text_or_none("commit"), {}};
  const Fields largest = f.object("largest");
  for (const auto& [tensor, ulp] : largest.value().items()) out.largest[tensor] = largest.number(tensor.c_str());
  return out;
}

Code code_from(const Fields& f) {
  const std::string text = f.text("code");
  for (const CodeText& known : code_texts())
    if (text == known.name) return known.code;
  f.fail("code", "a code, as AC301");
}

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

void write_diffable(const json& value, std::size_t depth, std::string& out) {
  const bool object = value.is_object();
  // Digests and sentences have a line of their own, numbers of one list stand beside each other.
  const bool numbers = std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_number(); });
  if (value.empty() || value.is_primitive() || numbers) {
    out += dumped(value);
    return;
  }
  out += object ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    out += (first ? "\n" : ",\n") + std::string(2 * (depth + 1), ' ');
    first = false;
    if (object) out += dumped(json(key)) + ": ";
    write_diffable(item, depth + 1, out);
  }
  out += "\n" + std::string(2 * depth, ' ') + (object ? "}" : "]");
}

/// Builds the value of a text, and refuses what a value would hide: a key that stands twice, and depth that would take
/// the stack of who reads it. json::parse with a callback looks at all that an object holds at the end of each of its
/// values: of 10,000 cases that is most of the time.
class StrictReader : public nlohmann::json_sax<json> {
 public:
  StrictReader(const std::string& path, json& out) : path_(path), out_(out) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return start(json::object()); }
  bool start_array(std::size_t) override { return start(json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    const auto [at, fresh] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!fresh) throw BaselineError(fmt::format("['{}'] got {} twice", path_, quoted_text(at->first)));
    value_ = &at->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw BaselineError(fmt::format("['{}'] is no JSON: {}", path_, error.what()));
  }

 private:
  static constexpr std::size_t kMostDepth = 64;

  json& place() {
    if (open_.empty()) return out_;
    if (!open_.back()->is_array()) return *value_;
    return open_.back()->get_ref<json::array_t&>().emplace_back();
  }
  template <class T>
  bool put(T&& value) {
    place() = std::forward<T>(value);
    return true;
  }
  bool start(json&& value) {
    if (open_.size() >= kMostDepth)
      throw BaselineError(fmt::format("['{}'] got more than {} levels", path_, kMostDepth));
    json& at = place();
    at = std::move(value);
    open_.push_back(&at);
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  const std::string& path_;
  json& out_;
  json* value_ = nullptr;    ///< of the last key
  std::vector<json*> open_;  ///< objects and lists that have not ended; the last one alone grows
};

/// A name as part of a file name.
std::string file_word(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '-' || (c == '.' && !out.empty());
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

json json_of(const Baseline& b) {
  json out = {{"schema", kSchema}, {"op", b.op}, {"settings", b.settings}, {"cases", json::object()}};
  if (!b.accepted.on.empty()) out["accepted"] = json_of(b.accepted);
  const Measured& m = b.measured;
  if (!m.ampcheck.empty())
    out["measured"] = json_of(
        {{"ampcheck", m.ampcheck}, {"compiler", m.compiler}, {"cpu", m.cpu}, {"file", m.file}, {"library", m.library}});
  for (const Acceptance& earlier : b.history) out["history"].push_back(json_of(earlier));
  for (const Waiver& w : b.waivers)
    out["waivers"].push_back({{"code", name(w.code)}, {"until", w.until}, {"reason", w.reason}});
  for (const PendingFinding& f : b.findings)
    out["findings"].push_back({{"code", name(f.code)},
                               {"cases", f.cases},
                               {"first", f.first},
                               {"smallest", f.smallest},
                               {"cause", f.cause},
                               {"seen_by_allclose", f.seen_by_allclose}});
  for (const auto& [name, stored] : b.cases) {
    json entry = {{"inputs", stored.inputs}, {"bits", stored.bits}, {"tensors", json::object()}};
    for (const auto& [tensor, profile] : stored.tensors) entry["tensors"][tensor] = json_of(profile);
    out["cases"][name] = std::move(entry);
  }
  return out;
}

Baseline baseline_from(const json& value, const std::string& where) {
  const Fields f(value, where);
  if (!f.has("schema") || f.value().at("schema") != kSchema) f.fail("schema", kSchema);
  Baseline out;
  out.op = f.text("op");
  out.settings = f.text("settings");
  if (f.has("accepted")) out.accepted = acceptance_from(f.object("accepted"));
  const Fields m = f.object("measured");
  out.measured = {m.text_or_none("ampcheck"), m.text_or_none("compiler"), m.text_or_none("cpu"),
                  m.text_or_none("library"), m.text_or_none("file")};
  for (const json& item : f.list("history")) out.history.push_back(acceptance_from(Fields(item, where + ": history")));
  for (const json& item : f.list("waivers")) {
    const Fields w(item, where + ": waivers");
    out.waivers.push_back({code_from(w), w.text("until"), w.text("reason")});
    if (!is_date(out.waivers.back().until)) w.fail("until", "a day, as 2026-12-31");
  }
  for (const json& item : f.list("findings")) {
    const Fields p(item, where + ": findings");
    out.findings.push_back({code_from(p), p.whole("cases"), p.text("first"), p.text_or_none("smallest"),
                            p.text_or_none("cause"), p.has("seen_by_allclose") ? p.whole("seen_by_allclose") : 0});
  }
  const Fields cases = f.object("cases");
  for (const auto& [name, stored] : cases.value().items()) out.cases[name] = case_from(cases.object(name.c_str()));
  return out;
}

std::string diffable_text(const json& value) {
  std::string out;
  write_diffable(value, 0, out);
  return out + "\n";
}

json read_json_file(const std::string& path) {
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;
  std::error_code none;
  if (std::filesystem::file_size(path, none) > kMostBytes && !none)
    throw BaselineError(fmt::format("['{}'] got more than 256 MB, want a smaller file", path));
  return parse_json(read_bytes(path, "baseline"), path);
}

json parse_json(const std::string& text, const std::string& path) {
  json out;
  StrictReader reader(path, out);
  json::sax_parse(text, &reader);
  return out;
}

Baseline read_baseline(const std::string& path) { return baseline_from(read_json_file(path), path); }

void write_baseline(const std::string& path, const Baseline& baseline) {
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);  // a failure shows as the next
  write_file(path, diffable_text(json_of(baseline)));
}

std::string baseline_path(const std::string& folder, const std::string& op) {
  return folder + "/" + file_word(op) + ".json";
}

std::string pending_path(const std::string& folder, const std::string& op) {
  return folder + "/" + file_word(op) + ".json.pending";
}

std::vector<std::string> pending_ops(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error))
    if (file.path().filename().string().ends_with(".json.pending")) out.push_back(read_baseline(file.path()).op);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> baseline_paths(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error))
    if (file.path().extension() == ".json") out.push_back(file.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ampcheck::tools
