// SPDX-License-Identifier: Apache-2.0
// How surely the reference of an op is right, and why the same difference cannot judge a low-precision kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "reference/certify/certify.h"
#include "src/float_format.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

struct Certified {
  const checks::OpDef* op = nullptr;
  reference::FormulaCertificate certificate;
  std::vector<reference::DifferenceLesson> lessons;

  bool holds() const { return certificate.digits >= reference::kCertifiedDigits; }
};

Certified certify_op(const checks::OpDef& op, const CertifyOptions& options) {
  const std::vector<reference::FormulaVariant> variants = reference::formula_variants(op.signature);
  Certified out{&op, reference::certify(op.signature, op.forms, variants, options.samples, options.seed), {}};
  if (!variants.empty())
    out.lessons = reference::difference_lessons(op.signature, op.forms.front(), variants.front(), options.seed);
  return out;
}

const reference::CertifiedPoint* worst_point(const reference::FormulaCertificate& certificate) {
  const auto worst = std::min_element(certificate.points.begin(), certificate.points.end(),
                                      [](const auto& a, const auto& b) { return a.digits < b.digits; });
  return worst == certificate.points.end() ? nullptr : &*worst;
}

std::string scientific(double value) { return fmt::format("{:.0e}", value); }

/// "3 %", "2e-11" or why there is none.
std::string error_text(double error) {
  if (std::isnan(error)) return "-";
  return error >= 0.001 ? percent(error) : scientific(error);
}

std::string lesson_text(const reference::DifferenceLesson& lesson) {
  const std::string at_1e_6 =
      lesson.step_vanishes ? "x + h == x: derivative reads 0" : error_text(lesson.error_at_1e_6);
  return fmt::format("  {:<20}  {:<9}   {:<10}   {}\n", lesson.arithmetic, scientific(lesson.best_step),
                     error_text(lesson.best_error), at_1e_6);
}

/// "default" or what differs from it.
std::string variant_text(const std::string& name) { return name.empty() ? "default" : name; }

/// What the variants vary, in one line; and each one that does not hold.
std::string variant_lines(const Certified& result, const Style& style) {
  const std::vector<reference::VariantCertificate>& variants = result.certificate.variants;
  if (variants.size() < 2) return "";
  std::vector<std::string> varied;
  for (const TensorSpec& spec : result.op->signature.inputs)
    if (spec.optional) varied.push_back(spec.name + " given or not");
  for (const AttributeSpec& spec : result.op->signature.attributes)
    if (!spec.other_values.empty())
      varied.push_back(fmt::format("{} values of {}", 1 + spec.other_values.size(), spec.name));
  const auto worst = std::min_element(variants.begin(), variants.end(),
                                      [](const auto& a, const auto& b) { return a.digits < b.digits; });
  std::string out = fmt::format("  in each of {} variants ({}); worst: {}\n", variants.size(), fmt::join(varied, ", "),
                                variant_text(worst->name));
  for (const reference::VariantCertificate& variant : variants)
    if (!(variant.digits >= reference::kCertifiedDigits))
      out += fmt::format("  {}{}: {:.1f} digits at {} points{}\n", style.red, variant_text(variant.name),
                         variant.digits, variant.points, style.reset);
  return out;
}

std::string text_of(const Certified& result, const Style& style) {
  const reference::FormulaCertificate& c = result.certificate;
  std::string out = fmt::format(
      "{}{}{}: gradients at {} points, 100-digit centred differences, h = {} and {}, one Richardson step\n", style.bold,
      result.op->signature.name, style.reset, c.points.size(), scientific(c.step), scientific(c.step / 2));
  const reference::CertifiedPoint* const worst = worst_point(c);
  const std::string where = worst == nullptr ? ""
                                             : fmt::format(" (worst: {} = {}, form {})", worst->input,
                                                           rounded_decimal(worst->x, 4), worst->form);
  const std::string ratio = std::isnan(c.error_ratio) ? "no error left to compare: the formula is at most quadratic"
                                                      : fmt::format("error ratio {:.8f} (order two: 4)", c.error_ratio);
  out += fmt::format("  {}agrees with the adjoint to {:.1f} digits{}{}; {}\n", result.holds() ? style.green : style.red,
                     c.digits, style.reset, where, ratio);
  if (!result.holds())
    out += fmt::format("  {}want at least {:.0f} digits: formula and adjoint differ{}\n", style.red,
                       reference::kCertifiedDigits, style.reset);
  out += variant_lines(result, style);
  for (const std::string& convention : c.conventions)
    out += fmt::format("  by convention without gradient, held fixed while differencing: {}\n", convention);
  if (c.kinks != 0)
    out += fmt::format("  {} coordinate{} at kinks, where one-sided limits differ: drawn anew\n", c.kinks,
                       c.kinks == 1 ? "" : "s");
  for (const reference::FormAgreement& form : c.forms)
    out += fmt::format("  form '{}' equals the first: forward to {:.1f} digits, gradients to {:.1f}\n", form.form,
                       form.forward_digits, form.gradient_digits);
  if (result.lessons.empty()) return out;
  out +=
      fmt::format("  {}The same difference in  best step   best error   with step 1e-6{}\n", style.bold, style.reset);
  for (const reference::DifferenceLesson& lesson : result.lessons) out += "  " + lesson_text(lesson);
  const double u = kFp32.unit_roundoff();
  out += fmt::format(
      "  In fp32 every value of f is off by up to {} of itself, and the difference divides that by the step: {} of f "
      "at 1e-6,\n"
      "  whatever the derivative. A larger step meets the curvature of f; the best one lies between.\n",
      scientific(u), percent(u / 1e-6));
  return out;
}

Json json_of(const Certified& result) {
  const reference::FormulaCertificate& c = result.certificate;
  Json out = {{"op", result.op->signature.name}, {"digits", json_number(c.digits)},
              {"certified", result.holds()},     {"error_ratio", json_number(c.error_ratio)},
              {"points", c.points.size()},       {"kinks", c.kinks},
              {"conventions", c.conventions},    {"steps", {json_number(c.step), json_number(c.step / 2)}}};
  if (const reference::CertifiedPoint* worst = worst_point(c))
    out["worst"] = {{"variant", worst->variant},
                    {"form", worst->form},
                    {"input", worst->input},
                    {"index", worst->index},
                    {"x", hex_float(worst->x)},
                    {"adjoint", hex_float(worst->adjoint)},
                    {"difference", hex_float(worst->difference)},
                    {"digits", json_number(worst->digits)}};
  out["variants"] = Json::array();
  for (const reference::VariantCertificate& v : c.variants)
    out["variants"].push_back({{"variant", v.name},
                               {"digits", json_number(v.digits)},
                               {"error_ratio", json_number(v.error_ratio)},
                               {"points", v.points},
                               {"kinks", v.kinks},
                               {"flat", v.flat},
                               {"conventions", v.conventions}});
  out["forms"] = Json::array();
  for (const reference::FormAgreement& form : c.forms)
    out["forms"].push_back({{"form", form.form},
                            {"forward_digits", json_number(form.forward_digits)},
                            {"gradient_digits", json_number(form.gradient_digits)}});
  out["differences"] = Json::array();
  for (const reference::DifferenceLesson& l : result.lessons)
    out["differences"].push_back({{"arithmetic", l.arithmetic},
                                  {"best_step", json_number(l.best_step)},
                                  {"best_error", json_number(l.best_error)},
                                  {"error_at_1e-6", json_number(l.error_at_1e_6)},
                                  {"step_vanishes", l.step_vanishes}});
  return out;
}

}  // namespace

ExitCode certify_command(const CertifyOptions& options) {
  const Style style = stdout_style();
  const std::vector<const checks::OpDef*> chosen = select_ops(options);
  for (const checks::OpDef* op : chosen)
    if (op->forms.empty())
      throw UsageError("[certify] got '" + op->signature.name +
                       "', which has no formula, want an op with one (ampcheck explain formula)");
  std::mutex mutex;  // what an interrupt reads while the next op is at work
  Json ops = Json::array();
  double digits = HUGE_VAL;
  bool all_hold = true;
  std::size_t done = 0;
  const auto json = [&](bool interrupted) {
    Json out = {{"schema", "ampcheck.certify/1"},
                {"digits", json_number(digits)},
                {"certified", all_hold && !interrupted},
                {"ops", ops}};
    if (interrupted) out["interrupted"] = true;
    return json_text(out);
  };
  const auto stopped = [&] {
    const std::lock_guard lock(mutex);
    if (options.json) write_stdout(json(true));
    write_stderr(
        fmt::format("ampcheck: interrupted after {} of {} ops{}\n", done, chosen.size(),
                    done == 0 ? "" : fmt::format("; those agree to {:.0f} digits and more", std::floor(digits))));
  };
  InterruptGuard guard(stopped);
  for (const checks::OpDef* op : chosen) {
    const Certified result = certify_op(*op, options);
    if (guard.interrupted()) break;
    const std::lock_guard lock(mutex);
    digits = std::min(digits, result.certificate.digits);
    all_hold = all_hold && result.holds();
    if (options.json)
      ops.push_back(json_of(result));
    else
      write_stdout((done == 0 ? "" : "\n") + text_of(result, style));  // as they come: each may take seconds
    ++done;
  }
  guard.finish();
  if (guard.interrupted()) {
    stopped();
    end_by_signal();
  }
  if (options.json) write_stdout(json(false));
  return all_hold ? ExitCode::passed : ExitCode::findings;
}

}  // namespace ampcheck::tools
