// SPDX-License-Identifier: Apache-2.0
#include "checks/case/row_part.h"

#include <algorithm>
#include <optional>

#include "checks/define/rows.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kElements = 512;

Numbers taken(const Numbers& values, const RowRange& rows) {
  const std::size_t width = values.size() / static_cast<std::size_t>(rows.all),
                    n = width * static_cast<std::size_t>(rows.count);
  Numbers out{reference::make_channel(static_cast<std::int64_t>(n)), n};
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(width) * rows.first, n, out.begin());
  return out;
}

/// Which rows: the first, unless they are wrong less than half as often as all are.
RowRange chosen(const Comparison& comparison, std::int64_t width, std::int64_t all) {
  const std::int64_t least = width >= 2 * kElements ? 1 : 2;  // rows that are matrices, one of them
  const std::int64_t count = std::max(least, (kElements + width - 1) / width), windows = all / count;
  if (windows < 2) return {0, all, all};
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(windows), 0);
  for (const std::int64_t i : comparison.outside)
    if (const std::int64_t window = i / width / count; window < windows) ++wrong[static_cast<std::size_t>(window)];
  if (2 * wrong.front() * all >= std::ssize(comparison.outside) * count) return {0, count, all};
  return {(std::max_element(wrong.begin(), wrong.end()) - wrong.begin()) * count, count, all};
}

Interval taken(const Interval& interval, const RowRange& rows, const Shape& shape) {
  Interval out{interval.form,
               interval.dtype,
               shape,
               taken(interval.value, rows),
               taken(interval.radius, rows),
               taken(interval.low, rows),
               taken(interval.high, rows),
               {}};
  const auto width = std::ssize(interval.how) / rows.all;
  if (!interval.how.empty())
    out.how.assign(interval.how.begin() + rows.first * width, interval.how.begin() + (rows.first + rows.count) * width);
  return out;
}

/// The values of every cotangent in these rows; nothing where one has neither rows nor the same elements.
std::optional<NamedValues> cotangents_of(CaseRun& run, RowPart& part, const RowRange& rows) {
  NamedValues out;
  for (const auto& [name, node] : part.run->reference.recording().cotangents) {
    const auto given = run.reference.cotangents().find(name);
    if (given == run.reference.cotangents().end()) return std::nullopt;
    const std::int64_t whole = std::ssize(given->second), here = node.shape().count();
    if (whole * rows.count == here * rows.all)
      out[name] = taken(given->second, rows);
    else if (whole == here)
      out[name] = given->second;
    else
      return std::nullopt;
  }
  return out;
}

/// Whether the formula gives the rows the values that they have among all of them.
bool same_values(RowPart& part, Pass pass) {
  CaseReference& reference = part.run->reference;
  for (const std::size_t form : reference.forms()) {
    if (reference.recording(form).form != part.interval.form) continue;
    const reference::Ball& ball = reference.ball(form, pass == Pass::forward ? pass : Pass::backward, part.tensor.name);
    if (ball.count() != std::ssize(part.got)) return false;
    if (pass == Pass::backward_at_saved) return true;  // nearly
    for (std::int64_t i = 0; i < ball.count(); ++i) {
      const double a = ball.v[i], b = part.interval.value[static_cast<std::size_t>(i)];
      if (a != b && (a == a || b == b)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace

bool RowCase::take(CaseRun& whole, const RowRange& rows) {
  const OpSignature& signature = whole.op.signature;
  call = with_rows(signature, whole.call, rows.count);
  if (!misplaced_rows(signature, whole.call).empty() ||
      (signature.valid && !signature.valid(call.dims, call.attributes)))
    return false;
  NamedValues inputs;
  for (const TensorSpec& spec : signature.inputs)
    if (whole.call.has(spec))
      inputs[spec.name] = has_rows(signature, spec) ? taken(whole.reference.inputs().at(spec.name), rows)
                                                    : whole.reference.inputs().at(spec.name);
  run = std::make_unique<CaseRun>(whole.op, call, whole.options, std::move(inputs));
  return true;
}

std::unique_ptr<RowPart> some_rows(const WrongTensor& wrong) {
  const OpSignature& signature = wrong.run.op.signature;
  const auto& by_row = signature.launch.row_independent;
  if (wrong.pass == Pass::jvp || wrong.comparison.outside.empty() ||
      std::find(by_row.begin(), by_row.end(), wrong.tensor.name) == by_row.end() ||
      wrong.run.accumulates(wrong.tensor.name))
    return nullptr;
  const std::int64_t all = rows_of(signature, wrong.run.call);
  if (all < 2 || wrong.tensor.shape.count() % all != 0) return nullptr;
  const std::int64_t width = wrong.tensor.shape.count() / all;
  const RowRange rows = width == 0 ? RowRange{0, all, all} : chosen(wrong.comparison, width, all);
  if (rows.count == all) return nullptr;
  auto part = std::make_unique<RowPart>();
  if (!part->take(wrong.run, rows)) return nullptr;
  for (const auto* list : {&part->run->outputs, &part->run->gradients})
    for (const Written& written : *list)
      if (written.name == wrong.tensor.name) part->tensor = written;
  if (part->tensor.name.empty() || part->tensor.shape.count() != width * rows.count) return nullptr;
  if (wrong.pass != Pass::forward) {
    std::optional<NamedValues> cotangents = cotangents_of(wrong.run, *part, rows);
    if (!cotangents) return nullptr;
    part->run->reference.set_cotangents(std::move(*cotangents));
  }
  part->got = taken(wrong.got, rows);
  part->interval = taken(wrong.interval, rows, part->tensor.shape);
  for (const std::int64_t i : wrong.comparison.outside)
    if (const std::int64_t at = i - rows.first * width; at >= 0 && at < std::ssize(part->got))
      part->comparison.outside.push_back(at);
  return !part->comparison.outside.empty() && same_values(*part, wrong.pass) ? std::move(part) : nullptr;
}

}  // namespace ampcheck::checks
