// SPDX-License-Identifier: Apache-2.0
#include "checks/case/row_part.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "checks/data/file_tensors.h"
#include "checks/define/rows.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

constexpr const char* kRows = "#rows";  // no symbol of a dump, which are "#64"

/// Some hundred. A file's tensors are explained in the time that their check takes: a small part of them, and of sums
/// of many thousand terms less, since each replay of one costs as much as all its terms.
std::int64_t elements_of(const OpCall& call, std::int64_t all) {
  constexpr std::int64_t kElements = 512, kLong = 1024, kFewest = 64, kParts = 32;
  if (!is_file_range(call.range)) return kElements;
  std::int64_t longest = kLong;
  for (const auto& [symbol, extent] : call.dims) longest = std::max(longest, extent);
  return std::max(kFewest, std::min(kElements, all / kParts) * kLong / longest);
}

Numbers taken(const Numbers& values, const RowRange& rows) {
  const std::size_t width = values.size() / static_cast<std::size_t>(rows.all),
                    n = width * static_cast<std::size_t>(rows.count);
  Numbers out{reference::make_channel(static_cast<std::int64_t>(n)), n};
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(width) * rows.first, n, out.begin());
  return out;
}

/// The elements in these places of one axis.
std::vector<double> taken(const std::vector<double>& values, const Shape& shape, int axis, const RowRange& rows) {
  std::int64_t inner = 1;
  for (int k = axis + 1; k < shape.rank; ++k) inner *= shape[k];
  std::vector<double> out;
  for (std::int64_t at = rows.first * inner; at < std::ssize(values); at += rows.all * inner)
    out.insert(out.end(), values.begin() + at, values.begin() + at + rows.count * inner);
  return out;
}

enum class Which { wrong, right };

/// Which rows: the first, unless they are wrong less than half as often as all are; or those that are wrong least.
RowRange chosen(const Comparison& comparison, std::int64_t elements, std::int64_t width, std::int64_t all,
                Which which) {
  const std::int64_t least = width >= 2 * elements ? 1 : 2;  // rows that are matrices, one of them
  const std::int64_t count = std::max(least, (elements + width - 1) / width), windows = all / count;
  if (windows < 2) return {0, all, all};
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(windows), 0);
  for (const std::int64_t i : comparison.outside)
    if (const std::int64_t window = i / width / count; window < windows) ++wrong[static_cast<std::size_t>(window)];
  if (which == Which::right)
    return {(std::min_element(wrong.begin(), wrong.end()) - wrong.begin()) * count, count, all};
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
    // Each value errs by less than 2^-29 of its radius (rule R11), and other sums are cut into other blocks.
    for (std::int64_t i = 0; i < ball.count(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double a = ball.v[i], b = part.interval.value[at];
      if (!(std::fabs(a - b) <= 0x1p-28 * part.interval.radius[at]) && a != b && (a == a || b == b)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace

bool RowCase::take(CaseRun& whole, const OpCall& all, const RowRange& rows) {
  const OpDef& op = own ? *own : whole.op;
  const OpSignature& signature = op.signature;
  call = with_rows(signature, all, rows.count);
  if ((!own && !misplaced_rows(signature, all).empty()) ||
      (signature.valid && !signature.valid(call.dims, call.attributes)))
    return false;
  NamedValues inputs;
  for (const TensorSpec& spec : signature.inputs) {
    if (!all.has(spec)) continue;
    const std::vector<double>& values = whole.reference.inputs().at(spec.name);
    const auto axis = axes.find(spec.name);
    inputs[spec.name] = axis != axes.end()          ? taken(values, all.shape(spec), axis->second, rows)
                        : has_rows(signature, spec) ? ampcheck::checks::taken(values, rows)
                                                    : values;
  }
  run = std::make_unique<CaseRun>(op, call, whole.options, std::move(inputs));
  run->part_of = whole.part_of != nullptr ? whole.part_of : &whole;
  return true;
}

namespace {

/// Rows of the wrong tensor, of a part that knows by which.
std::unique_ptr<RowPart> filled(const WrongTensor& wrong, std::unique_ptr<RowPart> part, const OpCall& call,
                                Which which) {
  const std::int64_t all = rows_of((part->own ? *part->own : wrong.run.op).signature, call);
  if (all < 2 || wrong.tensor.shape.count() % all != 0) return nullptr;
  const std::int64_t width = wrong.tensor.shape.count() / all;
  const RowRange rows =
      width == 0 ? RowRange{0, all, all}
                 : chosen(wrong.comparison, elements_of(call, wrong.tensor.shape.count()), width, all, which);
  if (rows.count == all) return nullptr;
  if (!part->take(wrong.run, call, rows)) return nullptr;
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
  return (which == Which::right || !part->comparison.outside.empty()) && same_values(*part, wrong.pass)
             ? std::move(part)
             : nullptr;
}

using RowAxes = std::map<std::string, int>;

/// The op with rows along the first axis of the wrong tensor, as if these axes of its inputs were theirs.
OpDef with_rows_in(const WrongTensor& wrong, const RowAxes& axes) {
  OpDef out = wrong.run.op;
  OpSignature& signature = out.signature;
  for (TensorSpec& spec : signature.inputs) {
    const auto axis = axes.find(spec.name);
    if (axis == axes.end()) continue;
    std::vector<std::string> extents = OpSignature::symbols(spec);
    extents[static_cast<std::size_t>(axis->second)] = kRows;
    spec.dims.clear();
    for (const std::string& extent : extents) spec.dims += (spec.dims.empty() ? "" : " ") + extent;
  }
  const std::int64_t count = wrong.tensor.shape[0];
  signature.dims.push_back({kRows, {count, count, count}});
  signature.launch.row_dim = kRows;
  signature.launch.row_independent = {wrong.tensor.name};
  return out;
}

/// Axes of inputs that may be those of the rows: the first axes of all inputs that have as many; one axis alone; one of
/// each input, as what is added up in the forward is rows in the gradient of a product.
std::vector<RowAxes> possible_axes(const WrongTensor& wrong) {
  RowAxes first, any;
  std::vector<RowAxes> out(1);
  for (const TensorSpec& spec : wrong.run.op.signature.inputs) {
    if (!wrong.run.call.has(spec)) continue;
    const Shape shape = wrong.run.call.shape(spec);
    for (int axis = 0; axis < shape.rank; ++axis)
      if (shape[axis] == wrong.tensor.shape[0]) {
        if (axis == 0) first[spec.name] = 0;
        any.try_emplace(spec.name, axis);
        out.push_back({{spec.name, axis}});
      }
  }
  out.front() = first;
  out.push_back(any);
  std::erase_if(out, [](const RowAxes& axes) { return axes.empty(); });
  return out;
}

std::unique_ptr<RowPart> rows_by_formula(const WrongTensor& wrong, Which which) {
  constexpr std::int64_t kWorthIt = 4096, kReplayed = 1 << 18;  // elements: of more nothing is replayed
  const Shape& shape = wrong.tensor.shape;
  if (!is_file_range(wrong.run.call.range) || wrong.pass == Pass::backward_at_saved || shape.rank < 2 ||
      shape.count() < kWorthIt || shape.count() > kReplayed)
    return nullptr;
  for (const RowAxes& axes : possible_axes(wrong)) {
    OpCall call = wrong.run.call;
    call.dims[kRows] = shape[0];
    auto part = std::make_unique<RowPart>();
    part->own = with_rows_in(wrong, axes);
    part->axes = axes;
    try {
      if ((part = filled(wrong, std::move(part), call, which))) return part;
    } catch (const EnvironmentError&) {
      throw;
    } catch (const Error&) {  // the formula fits no other number of rows
    }
  }
  return nullptr;
}

std::unique_ptr<RowPart> rows_of_it(const WrongTensor& wrong, Which which) {
  const LaunchContract& launch = wrong.run.op.signature.launch;
  if (wrong.pass == Pass::jvp || wrong.comparison.outside.empty() || wrong.run.accumulates(wrong.tensor.name))
    return nullptr;
  const auto& by_row = launch.row_independent;
  const bool any = rows_of(wrong.run.op.signature, wrong.run.call) > 0;
  if (any && std::find(by_row.begin(), by_row.end(), wrong.tensor.name) != by_row.end())
    return filled(wrong, std::make_unique<RowPart>(), wrong.run.call, which);
  return any ? nullptr : rows_by_formula(wrong, which);
}

}  // namespace

std::unique_ptr<RowPart> some_rows(const WrongTensor& wrong) { return rows_of_it(wrong, Which::wrong); }

std::unique_ptr<RowPart> right_rows(const WrongTensor& wrong) { return rows_of_it(wrong, Which::right); }

}  // namespace ampcheck::checks
