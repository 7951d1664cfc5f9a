// SPDX-License-Identifier: Apache-2.0
#include "tools/wire.h"

#include <bit>

#include "src/error.h"
#include "tools/json.h"

namespace ampcheck::tools {

namespace {

// A number travels as its bits: JSON has no infinities, and decimals would have to be read back.
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }
double number(const Json& json) { return std::bit_cast<double>(json.get<std::uint64_t>()); }

// Arrays in the order of the struct's fields. A new field of these structs must be added here: the sizes say so.
#if defined(__x86_64__) && defined(_GLIBCXX_RELEASE) && !defined(_GLIBCXX_DEBUG)
static_assert(sizeof(Element) == 112, "teach wire_text and from_wire the new field of Element");
static_assert(sizeof(CheckResult) == 224, "teach wire_text and from_wire the new field of CheckResult");
static_assert(sizeof(CaseResult) == 232, "teach wire_text and from_wire the new field of CaseResult");
#endif

Json to_json(const Element& e) {
  return Json::array({e.index, bits(e.got), bits(e.want), e.got_bits, e.want_bits, bits(e.ulp), bits(e.low), bits(e.high), e.interval_from});
}

Element element(const Json& j) {
  return {j.at(0).get<std::vector<std::int64_t>>(), number(j.at(1)), number(j.at(2)), j.at(3), j.at(4), number(j.at(5)), number(j.at(6)), number(j.at(7)), j.at(8)};
}

Json to_json(const CheckResult& c) {
  Json worst = Json::array();
  for (const Element& e : c.worst) worst.push_back(to_json(e));
  return Json::array({c.name, static_cast<int>(c.verdict), c.code, name(c.dtype), c.compared, c.blind, c.unusual, c.range, c.failed, bits(c.max_ratio), std::move(worst), c.cause, c.note, bits(c.visible)});
}

Verdict verdict(const Json& j) {
  const int value = j.get<int>();
  if (value < 0 || value > static_cast<int>(Verdict::crash)) throw Error("[worker] got verdict " + std::to_string(value));
  return static_cast<Verdict>(value);
}

CheckResult check(const Json& j) {
  CheckResult out;
  out.name = j.at(0), out.verdict = verdict(j.at(1)), out.code = j.at(2);
  const DtypeInfo* dtype = find_dtype(j.at(3).get<std::string>());
  if (dtype == nullptr) throw Error("[worker] got an unknown dtype");
  out.dtype = dtype->dtype;
  out.compared = j.at(4), out.blind = j.at(5), out.unusual = j.at(6), out.range = j.at(7), out.failed = j.at(8), out.max_ratio = number(j.at(9));
  for (const Json& e : j.at(10)) out.worst.push_back(element(e));
  out.cause = j.at(11), out.note = j.at(12), out.visible = number(j.at(13));
  return out;
}

}  // namespace

std::string wire_text(const CaseResult& r) {
  Json checks = Json::array();
  for (const CheckResult& c : r.checks) checks.push_back(to_json(c));
  const Json out = Json::array({r.name, r.op, r.plugin, r.dtype, static_cast<int>(r.verdict), r.code, r.note, std::move(checks), bits(r.seconds)});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CaseResult from_wire(std::string_view text) {
  try {
    const Json j = Json::parse(text);
    CaseResult out;
    out.name = j.at(0), out.op = j.at(1), out.plugin = j.at(2), out.dtype = j.at(3), out.verdict = verdict(j.at(4)), out.code = j.at(5), out.note = j.at(6);
    for (const Json& c : j.at(7)) out.checks.push_back(check(c));
    out.seconds = number(j.at(8));
    return out;
  } catch (const Json::exception& error) {
    throw Error(std::string("[worker] got a result that cannot be read: ") + error.what());
  }
}

}  // namespace ampcheck::tools
