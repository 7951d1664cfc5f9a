// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/audit_zoo_parts.h"

#include <algorithm>
#include <span>

#include "src/file_bytes.h"
#include "tools/report/environment.h"
#include "tools/report/foreign_file.h"
#include "tools/report/output.h"
#include "tools/workers/wire_bytes.h"

namespace ampcheck::tools {

namespace {

using namespace checks::zoo;

constexpr const char* kSchema = "ampcheck.audit_zoo_part/3";

/// Field by field in the order of the struct, numbers as 8 bytes (tools/workers/wire_bytes.h).
void put(Writer& w, const Trial& t) {
  w.put(t.specimen->name());
  w.put(std::string(name(t.dtype)));
  w.put(t.cases);
  w.put(t.convicted);
  w.put(t.case_name);
  w.put(t.cause);
  w.put(std::string(name(t.code)));
  w.put(static_cast<std::uint64_t>(t.verdict));
  for (const bool flag : {t.exact_class, t.right_class, t.right_cause, t.reproduced, t.wrong_cause})
    w.put(std::uint64_t{flag});
  w.put(t.gate_cases);
  w.put(std::uint64_t{t.gate_rejections.size()});
  for (const std::int64_t rejections : t.gate_rejections) w.put(rejections);
  w.put(std::uint64_t{t.gradcheck.size()});
  for (const char rejects : t.gradcheck) w.put(static_cast<std::uint64_t>(rejects != 0));
  w.put(t.alone_cases);
  w.put(t.alone_convicted);
  w.put(t.alone_case);
  w.put(std::uint64_t{t.alone_case_needs_form});
  w.put(t.needs_form);
  w.put(t.needs_form_convicted);
  w.put(t.seconds);
}

/// The entry of that name in any of the lists.
template <class T>
const T& named(const std::string& wanted, std::initializer_list<std::span<const T>> lists, auto name_of) {
  for (const std::span<const T> list : lists)
    for (const T& entry : list)
      if (name_of(entry) == wanted) return entry;
  throw Error("got the unknown kernel '" + wanted + "'");
}

const std::string& name_of(const Specimen& specimen) { return specimen.name(); }
const std::string& name_of(const checks::Cheat& cheat) { return cheat.planted.op.signature.name; }

void get(Reader& r, Trial& t) {
  std::string specimen;
  r.get(specimen);
  t.specimen = &named<Specimen>(specimen, {specimens(), specimens_in_fp64()},
                                [](const Specimen& s) -> const std::string& { return name_of(s); });
  r.get(t.dtype);
  r.get(t.cases);
  r.get(t.convicted);
  r.get(t.case_name);
  r.get(t.cause);
  r.get(t.code);
  r.get(t.verdict);
  for (bool* const flag : {&t.exact_class, &t.right_class, &t.right_cause, &t.reproduced, &t.wrong_cause}) r.get(*flag);
  r.get(t.gate_cases);
  t.gate_rejections.resize(r.count(8));
  for (std::int64_t& rejections : t.gate_rejections) r.get(rejections);
  t.gradcheck.resize(r.count(8));
  for (char& rejects : t.gradcheck) {
    bool flag = false;
    r.get(flag);
    rejects = static_cast<char>(flag);
  }
  r.get(t.alone_cases);
  r.get(t.alone_convicted);
  r.get(t.alone_case);
  r.get(t.alone_case_needs_form);
  r.get(t.needs_form);
  r.get(t.needs_form_convicted);
  r.get(t.seconds);
  if (t.gate_rejections.size() != usual_gates().size() ||
      (!t.gradcheck.empty() && t.gradcheck.size() != gradcheck_rules().size()))
    throw Error("got a trial with other rules");
}

void put(Writer& w, const CheatTrial& t) {
  w.put(name_of(*t.cheat));
  w.put(std::string(name(t.dtype)));
  w.put(t.cases);
  w.put(t.convicted);
  w.put(std::string(name(t.code)));
  w.put(t.cause);
  w.put(t.case_name);
  w.put(t.named);
}

void get(Reader& r, CheatTrial& t) {
  std::string cheat;
  r.get(cheat);
  t.cheat = &named<checks::Cheat>(cheat, {checks::cheats()},
                                  [](const checks::Cheat& c) -> const std::string& { return name_of(c); });
  r.get(t.dtype);
  r.get(t.cases);
  r.get(t.convicted);
  r.get(t.code);
  r.get(t.cause);
  r.get(t.case_name);
  r.get(t.named);
}

}  // namespace

void write_zoo_part(const std::string& path, const std::string& settings, const ZooAudit& part) {
  Writer w;
  for (const std::string& text : {std::string(kSchema), build_facts().version, settings}) w.put(text);
  w.put(std::uint64_t{part.trials.size()});
  for (const Trial& trial : part.trials) put(w, trial);
  w.put(std::uint64_t{part.cheats.size()});
  for (const CheatTrial& trial : part.cheats) put(w, trial);
  write_file(path, w.take());
}

void read_zoo_part(const std::string& path, const std::string& settings, ZooAudit& to) {
  const auto foreign = [&](const std::string& what) {
    throw ForeignFileError("['" + path + "'] " + what + ", want a part of this audit zoo (--engine mpi --run-file)");
  };
  const std::string bytes = read_bytes(path, "part");
  try {
    Reader r(bytes);
    std::string schema, version, asked;
    r.get(schema);
    if (schema != kSchema) foreign("got another file");
    r.get(version);
    if (version != build_facts().version) foreign("got a part of version " + version);
    r.get(asked);
    if (asked != settings) foreign("got a part with other options: '" + asked + "'");
    for (std::size_t n = r.count(8); n > 0; --n) get(r, to.trials.emplace_back());
    for (std::size_t n = r.count(8); n > 0; --n) get(r, to.cheats.emplace_back());
    r.end();
  } catch (const ForeignFileError&) {
    throw;
  } catch (const Error& error) {
    foreign(std::string("got bytes that cannot be read (") + error.what() + ")");
  }
}

void sort_as_audited(ZooAudit& audit) {
  // Each list keeps its kernels in one array, and a kernel's trials are of one part and in order. Those in fp64 come
  // last.
  const auto key = [](const Trial& t) {
    const std::span<const Specimen> first = specimens();
    const bool fp64 = t.specimen < first.data() || t.specimen >= first.data() + first.size();
    return std::pair(fp64, t.specimen);
  };
  std::ranges::stable_sort(audit.trials, [&](const Trial& a, const Trial& b) { return key(a) < key(b); });
  std::ranges::stable_sort(audit.cheats, [](const CheatTrial& a, const CheatTrial& b) { return a.cheat < b.cheat; });
}

}  // namespace ampcheck::tools
