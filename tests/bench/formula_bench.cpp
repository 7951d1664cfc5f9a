// SPDX-License-Identifier: Apache-2.0
// The check of one small case with its forms as text against the same forms in C++: both are graphs, so that only the
// walk over the text is more.
#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/error.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

/// The forms of rms_norm (reference/rms_norm.h) as a plug-in would write them.
checks::OpDef rms_norm_in_text() {
  checks::OpDef op = *checks::find_op("rms_norm");
  const char* const texts[] = {
      "inv_rms = stored(inv_rms, rsqrt(mean(square(x), -1) + eps)); n = x * inv_rms; y = given(weight, n * weight, n)",
      "inv_rms = stored(inv_rms, rsqrt(mean(square(x), -1) + eps)); n = x * inv_rms  with dx = inv_rms * (dn - n * "
      "mean(dn * n, -1)); y = given(weight, n * weight, n)",
      ("inv_rms = stored(inv_rms, rsqrt(mean(square(x), -1) + eps)); n = x * inv_rms  with dx = inv_rms * dn - x * "
       "(inv_rms * inv_rms * inv_rms * mean(dn * x, -1)); "
       "y = given(weight, n * weight, n)")};
  for (std::size_t i = 0; i < op.forms.size(); ++i)
    op.forms[i] = reference::form_from_text(op.signature, op.forms[i].name, texts[i]);
  return op;
}

void text_against_code(benchmark::State& state, const std::string& case_name) {
  const checks::OpDef& code = *checks::find_op("rms_norm");
  const checks::OpDef text = rms_norm_in_text();
  const OpCall call = parse_call(case_name, code.signature);
  const auto check = [&](const checks::OpDef& op) {
    const CaseResult result = checks::run_case(op, call, {});
    if (result.verdict != Verdict::rounding)
      throw Error("[bench] verdict of " + result.name + ", got " + ampcheck::name(result.code) + ", want none");
  };
  const auto times = [&](const checks::OpDef& op) {
    for (int i = 0; i < 20; ++i) check(op);
  };
  const Pair best = interleaved(
      state, 1, [&] { times(code); }, [&] { times(text); });
  state.counters["ratio"] = best.subject / best.baseline;
  record_figure("check of " + case_name + ", formula as text / in C++", Goal::at_most, 1.1,
                best.subject / best.baseline, "x");
}

void recording(benchmark::State& state) {
  const checks::OpDef& code = *checks::find_op("rms_norm");
  const checks::OpDef text = rms_norm_in_text();
  const reference::CaseInputs inputs{{{"x", {5, 7}}, {"weight", {7}}}, {}, {}};
  Attributes attributes;
  attributes.set("eps", 1e-6);
  const auto record = [&](const checks::OpDef& op) {
    for (int i = 0; i < 100; ++i)
      for (const reference::Form& form : op.forms)
        benchmark::DoNotOptimize(reference::record(op.signature, form, attributes, inputs));
  };
  const Pair best = interleaved(
      state, 1, [&] { record(code); }, [&] { record(text); });
  state.counters["code_us"] = best.baseline * 1e4;
  state.counters["text_us"] = best.subject * 1e4;
  state.counters["ratio"] = best.subject / best.baseline;
}

const bool registered = [] {
  for (const char* name : {"rms_norm(x=bf16[5,7],seed=1)", "rms_norm(x=bf16[64,129],seed=1)"})
    add_figure(std::string("formula/") + name, 20,
               [name = std::string(name)](benchmark::State& state) { text_against_code(state, name); });
  add_figure("formula/recording of three forms", 20, recording);
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
