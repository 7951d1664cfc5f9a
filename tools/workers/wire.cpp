// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/wire.h"

#include "tools/workers/wire_bytes.h"

namespace ampcheck::tools {

namespace {

// Fields in the order of the struct's; numbers as 8 bytes, texts and lists behind their length. A new field of these
// structs must be added here: the sizes say so.
#if defined(__x86_64__) && defined(_GLIBCXX_RELEASE) && !defined(_GLIBCXX_DEBUG)
static_assert(sizeof(Element) == 112, "teach wire_text and from_wire the new field of Element");
static_assert(sizeof(LineErrors) == 176, "teach wire_text and from_wire the new field of LineErrors");
static_assert(sizeof(CheckResult) == 376, "teach wire_text and from_wire the new field of CheckResult");
static_assert(sizeof(CaseResult) == 296,
              "teach wire_text and from_wire the new field of CaseResult");  // but `smallest` and `explained`, which
                                                                             // the supervisor knows
#endif

void put(Writer& w, const Element& e) {
  w.put(std::uint64_t{e.index.size()});
  for (const std::int64_t i : e.index) w.put(i);
  w.put(e.got);
  w.put(e.want);
  w.put(e.got_bits);
  w.put(e.want_bits);
  w.put(e.ulp);
  w.put(e.low);
  w.put(e.high);
  w.put(e.interval_from);
}

void get(Reader& r, Element& e) {
  e.index.resize(r.count(8));
  for (std::int64_t& i : e.index) r.get(i);
  r.get(e.got);
  r.get(e.want);
  r.get(e.got_bits);
  r.get(e.want_bits);
  r.get(e.ulp);
  r.get(e.low);
  r.get(e.high);
  r.get(e.interval_from);
}

void put(Writer& w, const CheckId& id) {
  w.put(static_cast<std::uint64_t>(id.kind));
  w.put(id.tensor);
  w.put(id.dim);
  w.put(std::int64_t{id.probe});
  w.put(std::uint64_t{id.at_saved});
  w.put(std::uint64_t{id.loss_scale.has_value()});
  w.put(std::int64_t{id.loss_scale.value_or(0)});
}

void get(Reader& r, CheckId& id) {
  r.get(id.kind);
  r.get(id.tensor);
  r.get(id.dim);
  r.get(id.probe);
  r.get(id.at_saved);
  bool scaled = false;
  int scale = 0;
  r.get(scaled);
  r.get(scale);
  if (scaled) id.loss_scale = scale;
}

/// Where the wrong elements of a check lie, or nothing.
void put_map(Writer& w, const std::optional<ErrorMap>& map) {
  w.put(std::uint64_t{map.has_value()});
  if (!map) return;
  for (const std::int64_t extent : {map->rows, map->columns, map->bin_rows, map->bin_columns}) w.put(extent);
  w.put(map->levels);
}

std::optional<ErrorMap> get_map(Reader& r) {
  bool there = false;
  r.get(there);
  if (!there) return std::nullopt;
  ErrorMap map;
  for (std::int64_t* const extent : {&map.rows, &map.columns, &map.bin_rows, &map.bin_columns}) r.get(*extent);
  r.get(map.levels);
  if (!is_whole(map)) throw Error("[worker] got a map of errors that is none");
  return map;
}

void put(Writer& w, const CheckResult& c) {
  put(w, c.id);
  w.put(static_cast<std::uint64_t>(c.verdict));
  w.put(std::string(name(c.code)));
  w.put(std::string(name(c.dtype)));
  w.put(c.compared);
  w.put(c.blind);
  w.put(c.unusual);
  w.put(c.range);
  w.put(c.by_forms);
  w.put(c.by_regrouping);
  w.put(c.failed);
  w.put(c.max_ratio);
  w.put(std::uint64_t{c.worst.size()});
  for (const Element& e : c.worst) put(w, e);
  w.put(c.visible);
  w.put(c.cause);
  w.put(c.note);
  w.put(std::uint64_t{c.power.size()});
  for (const double share : c.power) w.put(share);
  w.put(c.saturated);
  w.put(c.nans);
  w.put(c.unjudged);
  put_map(w, c.map);
}

void get(Reader& r, CheckResult& c) {
  get(r, c.id);
  r.get(c.verdict);
  r.get(c.code);
  r.get(c.dtype);
  r.get(c.compared);
  r.get(c.blind);
  r.get(c.unusual);
  r.get(c.range);
  r.get(c.by_forms);
  r.get(c.by_regrouping);
  r.get(c.failed);
  r.get(c.max_ratio);
  c.worst.resize(r.count(9 * 8));
  for (Element& e : c.worst) get(r, e);
  r.get(c.visible);
  r.get(c.cause);
  r.get(c.note);
  c.power.resize(r.count(8));
  for (double& share : c.power) r.get(share);
  r.get(c.saturated);
  r.get(c.nans);
  r.get(c.unjudged);
  c.map = get_map(r);
}

void put(Writer& w, const LineErrors& line) {
  w.put(line.kernel);
  w.put(line.place);
  for (const double error : {line.local_ulp, line.local, line.carried_ulp, line.carried}) w.put(error);
  for (const std::int64_t count :
       {line.results, line.cancelled_bits, line.nans, line.infinities, line.underflows, line.subnormals})
    w.put(count);
  for (const std::int64_t lost : line.lost_by) w.put(lost);
}

void get(Reader& r, LineErrors& line) {
  r.get(line.kernel);
  r.get(line.place);
  for (double* const error : {&line.local_ulp, &line.local, &line.carried_ulp, &line.carried}) r.get(*error);
  for (std::int64_t* const count :
       {&line.results, &line.cancelled_bits, &line.nans, &line.infinities, &line.underflows, &line.subnormals})
    r.get(*count);
  for (std::int64_t& lost : line.lost_by) r.get(lost);
}

}  // namespace

std::string wire_text(const CaseResult& result) {
  Writer w;
  w.put(result.name);
  w.put(result.op);
  w.put(result.plugin);
  w.put(result.dtype);
  w.put(static_cast<std::uint64_t>(result.verdict));
  w.put(std::string(name(result.code)));
  w.put(result.note);
  w.put(std::uint64_t{result.checks.size()});
  for (const CheckResult& check : result.checks) put(w, check);
  w.put(result.seconds);
  w.put(result.values);
  w.put(std::uint64_t{result.lines.size()});
  for (const LineErrors& line : result.lines) put(w, line);
  return w.take();
}

CaseResult from_wire(std::string_view text) {
  Reader r(text);
  CaseResult out;
  r.get(out.name);
  r.get(out.op);
  r.get(out.plugin);
  r.get(out.dtype);
  r.get(out.verdict);
  r.get(out.code);
  r.get(out.note);
  out.checks.resize(r.count(23 * 8));
  for (CheckResult& check : out.checks) get(r, check);
  r.get(out.seconds);
  r.get(out.values);
  out.lines.resize(r.count(16 * 8));
  for (LineErrors& line : out.lines) get(r, line);
  r.end();
  return out;
}

}  // namespace ampcheck::tools
