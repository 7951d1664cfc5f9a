// SPDX-License-Identifier: Apache-2.0
// ampcheck._core: the C++ face of ampcheck for the Python package. The judge runs without the GIL; a kernel takes it
// for the time of its call. The judge lives in the process of the caller, since a Python function (a closure, a
// compiled torch function) cannot be sent to another one; the static libraries are position-independent and the
// program's own, so linking them costs no object that is not built anyway.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <future>

#include "src/amp/tensor_stats.h"
#include "tools/python/src/described_op.h"

namespace nb = nanobind;

namespace ampcheck::python {

namespace {

struct Chosen {
  check::Op op;
  std::shared_ptr<Kernels> kernels;  // null for a built-in op or one of a library
};

check::Options options_of(const nb::dict& from) {
  check::Options out;
  out.cases = nb::cast<std::vector<std::string>>(from["cases"]);
  out.dtypes = nb::cast<std::vector<std::string>>(from["dtypes"]);
  out.seeds = nb::cast<std::uint64_t>(from["seeds"]);
  out.first_seed = nb::cast<std::uint64_t>(from["seed"]);
  const auto regimes = nb::cast<std::string>(from["regimes"]);
  out.regimes = regimes == "quick"      ? check::Regimes::quick
                : regimes == "standard" ? check::Regimes::standard
                : regimes == "all"
                    ? check::Regimes::all
                    : throw check::UsageError("[regimes] got '" + regimes + "', want quick, standard or all");
  out.real_tensors = check::RealTensors::off;
  out.jobs = nb::cast<int>(from["jobs"]);
  out.time_budget = nb::cast<double>(from["budget_s"]);
  out.relations = nb::cast<bool>(from["relations"]);
  out.worker_program = nb::cast<std::string>(from["program"]);
  out.again = nb::cast<std::string>(from["again"]);
  out.inputs = nb::cast<std::string>(from["inputs"]);
  return out;
}

/// Runs the judge in a thread of its own, so that Ctrl-C of the caller's is seen: the run then stops at the next case.
check::Report run(const Chosen& chosen, const nb::dict& given) {
  std::atomic<bool> cancel{false};
  check::Options options = options_of(given);
  options.cancel = &cancel;
  std::future<check::Report> judged = std::async(std::launch::async, [&] { return check::run(chosen.op, options); });
  bool interrupted = false;
  for (bool done = false; !done;) {
    {
      const nb::gil_scoped_release free;
      done = judged.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
    }
    if (done || interrupted || PyErr_CheckSignals() == 0) continue;
    interrupted = true;
    cancel = true;
  }
  if (interrupted) throw nb::python_error();
  return judged.get();
}

nb::dict element_of(const check::Element& from) {
  nb::dict out;
  nb::list index;
  for (const std::int64_t i : from.index) index.append(i);
  out["index"] = nb::tuple(index);
  out["got"] = from.got;
  out["want"] = from.want;
  out["ulp"] = from.ulp;
  out["low"] = from.low;
  out["high"] = from.high;
  out["interval_from"] = from.interval_from;
  return out;
}

/// The findings, each with the case that it is of.
nb::list findings_of(const check::Report& report) {
  nb::list out;
  for (const check::Finding& from : report.findings()) {
    nb::dict finding;
    finding["verdict"] = check::name(from.verdict);
    finding["code"] = from.code;
    finding["case"] = from.case_name;
    finding["check"] = from.check;
    finding["tensor"] = from.tensor;
    finding["cause"] = from.cause;
    nb::list worst;
    for (const check::Element& element : from.worst) worst.append(element_of(element));
    finding["worst"] = worst;
    for (const check::Case& item : report.cases()) {
      if (item.name != from.case_name) continue;
      finding["smallest"] = item.smallest;
      finding["values"] = item.values;
      finding["note"] = item.note;
      for (const check::Check& one : item.checks)
        if (one.name == from.check && one.code == from.code) finding["note"] = one.note;
    }
    out.append(finding);
  }
  return out;
}

nb::list inputs_of(const Chosen& chosen, const std::string& case_name) {
  nb::list out;
  for (const check::CaseTensor& from : check::inputs_of(chosen.op, case_name)) {
    nb::dict tensor;
    tensor["name"] = from.name;
    tensor["dtype"] = from.dtype;
    tensor["shape"] = nb::tuple(nb::cast(from.shape));
    tensor["values"] = nb::bytes(from.values.data(), from.values.size() * sizeof(double));
    out.append(tensor);
  }
  return out;
}

nb::dict totals_of(const check::Report& report) {
  const check::Totals from = report.totals();
  nb::dict out;
  out["cases"] = from.cases;
  out["passed"] = from.passed;
  out["failed"] = from.failed;
  out["skipped"] = from.skipped;
  out["elements"] = from.elements;
  out["blind"] = from.blind;
  return out;
}

nb::dict power_of(const Chosen& chosen, const check::Report& report, bool backward) {
  check::Power from;
  {
    const nb::gil_scoped_release free;
    from = check::power_of(chosen.op, report, backward);
  }
  nb::dict out;
  out["changes"] = from.changes;
  out["found"] = from.found;
  out["missed"] = from.missed;
  out["cases"] = from.cases;
  return out;
}

Chosen built_in(const std::string& name) {
  const std::optional<check::Op> op = check::find_op(name);
  if (!op) throw check::UsageError("[reference] got '" + name + "', which is no built-in op and no formula");
  return {*op, nullptr};
}

Chosen of_library(const std::string& path, const std::string& name) {
  const check::Library library = check::load_plugin(path);
  if (name.empty() && library.ops.size() == 1) return {library.ops.front(), nullptr};
  std::string list;
  for (const check::Op& op : library.ops) list += (list.empty() ? "" : ", ") + op.name();
  const std::optional<check::Op> op = library.find(name);
  if (!op) throw check::UsageError("[check] got op '" + name + "' of '" + path + "', want one of " + list);
  return {*op, nullptr};
}

/// Statistics of `elements` numbers of a type, one behind the other, at an address of this process.
nb::dict stats_of(std::uintptr_t address, const std::string& type, std::int64_t elements) {
  const DtypeInfo* info = find_dtype(type);
  if (info == nullptr || info->format == nullptr)
    throw check::UsageError("[stats] got dtype '" + type + "', want the name of a floating type");
  TensorStats stats;
  {
    const nb::gil_scoped_release free;
    TensorView view;
    view.data = reinterpret_cast<void*>(address);  // NOLINT: an address from Python is a number
    view.dtype = info->dtype;
    view.shape = Shape{elements};
    view.strides = row_major_strides(view.shape);
    stats = tensor_stats(view);
  }
  nb::dict out;
  out["zero"] = stats.zeros;
  out["nan"] = stats.nans;
  out["inf"] = stats.infinities();
  out["amax"] = stats.amax_finite();
  out["amin"] = stats.amin();
  out["exponents"] = stats.exponents;
  return out;
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a module that ends with its interpreter owes nothing
  const auto error = nb::exception<check::Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<check::UsageError>(m, "UsageError", error);
  nb::exception<check::EnvironmentError>(m, "EnvironmentError", error);
  nb::class_<Chosen>(m, "Op")
      .def_prop_ro("name", [](const Chosen& chosen) { return chosen.op.name(); })
      .def_prop_ro("dtypes", [](const Chosen& chosen) { return chosen.op.dtypes(); })
      .def_prop_ro("inputs", [](const Chosen& chosen) { return chosen.op.inputs(); })
      .def_prop_ro("outputs", [](const Chosen& chosen) { return chosen.op.outputs(); });
  nb::class_<check::Report>(m, "Report")
      .def_prop_ro("passed", &check::Report::passed)
      .def_prop_ro("interrupted", &check::Report::interrupted)
      .def_prop_ro("seconds", &check::Report::seconds)
      .def_prop_ro("notes", &check::Report::notes)
      .def_prop_ro("findings", &findings_of)
      .def_prop_ro("totals", &totals_of)
      .def("to_json", &check::to_json)
      .def("to_text", &check::to_text);
  m.def("describe", [](const nb::dict& spec) {
    DescribedOp made = describe(spec);
    return Chosen{made.op, made.kernels};
  });
  m.def("built_in", &built_in);
  m.def("of_library", &of_library);
  m.def("run", &run);
  m.def("inputs_of", &inputs_of);
  m.def("power_of", &power_of);
  m.def("stats_of", &stats_of);
}

}  // namespace ampcheck::python
