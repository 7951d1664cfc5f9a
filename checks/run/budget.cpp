// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>

#include "checks/case/case_reference.h"
#include "checks/data/regimes.h"
#include "checks/run/sampled.h"
#include "reference/graph/row_plan.h"

namespace ampcheck::checks {

namespace {

constexpr double kMiB = 0x1p20;

double bytes_of(const Shape& shape, Dtype dtype) {
  double out = bytes(dtype);
  for (int axis = 0; axis < shape.rank; ++axis) out *= static_cast<double>(shape[axis]);
  return out;
}

constexpr double kByRows = 12,
                 kWhole = 40;  ///< memory of a check in units of the op's tensors, as ampcheck_bench holds them

struct Recorded {
  double bytes = 0;  ///< outputs with their cotangents, and saved tensors
  double balls = 0;  ///< values and radii of all nodes, of those that go by rows one block
  bool by_rows = true;
};

/// What the first form records. A graph without products and maps is evaluated in blocks of rows; what others hold
/// between their operands and results (scores of attention, unfolded images) may be larger than these.
Recorded recorded(const OpDef& op, const OpCall& call) {
  NamedValues integers;  // floats are known by their shapes
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec))
      integers[spec.name] = is_float(call.dtype(spec)) ? std::vector<double>() : input_values(op.signature, call, spec);
  const reference::Recording recording = recorded(op, call, integers);
  Recorded out;
  for (const reference::Node& node : recording.graph->nodes())
    out.by_rows &= node.primitive != reference::Primitive::matmul && node.primitive != reference::Primitive::take &&
                   node.primitive != reference::Primitive::put_add;
  const reference::RowPlan plan =
      reference::plan_rows(*recording.graph, std::vector<char>(recording.graph->nodes().size(), 1));
  for (std::size_t id = 0; id < recording.graph->nodes().size(); ++id) {
    const double ball = 2 * bytes_of(recording.graph->node(static_cast<int>(id)).shape, Dtype::fp64);
    out.balls += plan.grain[id] == reference::Grain::row && plan.rows > 0
                     ? ball * static_cast<double>(std::min(plan.step, plan.rows)) / static_cast<double>(plan.rows)
                     : ball;
  }
  for (const OutputSpec& spec : op.signature.outputs)
    out.bytes += 2 * bytes_of(CaseReference::shape_of(recording.outputs, spec.name), dtype_of(spec.type, call.storage));
  for (const OutputSpec& spec : op.signature.saved)
    out.bytes += bytes_of(recording.stored.at(spec.name).shape(), dtype_of(spec.type, call.storage));
  return out;
}

std::string size_text(std::int64_t size) {
  return size >= 1 << 30 ? fmt::format("{:.1f} GiB", static_cast<double>(size) / 0x1p30)
                         : fmt::format("{:.0f} MiB", static_cast<double>(size) / kMiB);
}

/// The number in the first line of a file that begins with `key`; infinity if there is none.
double number_in(const char* path, const std::string& key, double unit) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      double out = 0;
      bool any = false;
      for (const char c : line.substr(key.size()))
        if (c >= '0' && c <= '9') {
          out = 10 * out + (c - '0');
          any = true;
        }
      if (any) return out * unit;
    }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

std::int64_t memory_need(const OpDef& op, const OpCall& call, std::int64_t enough) {
  double inputs = 0, all = 0;
  for (const TensorSpec& spec : op.signature.inputs) {
    if (!call.has(spec)) continue;
    const double size = bytes_of(call.shape(spec), call.dtype(spec));
    inputs += size;
    all += spec.has_gradient() ? 2 * size : size;
  }
  const bool long_axis =
      std::ranges::any_of(call.dims, [](const auto& dim) { return dim.second > 1024; });  // its square may be large
  if (inputs < kMiB && !long_axis) return 0;
  double times = kByRows, balls = 0;
  if (op.forms.empty()) {
    times = kWhole;
  } else if (times * all <
             static_cast<double>(enough)) {  // recording may list elements: not where the inputs alone are too large
    try {
      const Recorded record = recorded(op, call);
      all += record.bytes;
      if (!record.by_rows) {
        times = kWhole;
        balls = record.balls;
      }
    } catch (const std::bad_alloc&) {  // a list of elements of its own
      return std::int64_t{1} << 62;
    } catch (const std::length_error&) {
      return std::int64_t{1} << 62;
    }
  }
  return static_cast<std::int64_t>(std::min(std::max(times * all, balls) + 64 * kMiB, 0x1p62));
}

std::int64_t available_memory() {
  const double system = number_in("/proc/meminfo", "MemAvailable:", 1024);
  const double group =
      number_in("/sys/fs/cgroup/memory.max", "", 1) - number_in("/sys/fs/cgroup/memory.current", "", 1);
  const double least = std::isnan(group) ? system : std::min(system, std::max(group, 0.0));
  return static_cast<std::int64_t>(std::min(least, 0x1p62));
}

Budget::Budget(const RunOptions& options)
    : memory_(options.memory > 0 ? options.memory : available_memory() / 5 * 4),
      seconds_(options.time_budget > 0 ? options.time_budget : std::numeric_limits<double>::infinity()) {}

Budget::Share Budget::share(const Case& item) {
  if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > seconds_)
    return {*this, 0, fmt::format("not started within {:.0f} s (--time-budget)", seconds_)};
  std::int64_t need = memory_need(*item.op, item.call, memory_);
  bool sampled = false;
  if (need > memory_) {
    const std::string refused =
        fmt::format("its check would take about {}, and may take {} (--memory)", size_text(need), size_text(memory_));
    if (const std::string why = why_not_sampled(*item.op, item.call); !why.empty())
      return {*this, 0, refused + "; it cannot be judged on sampled rows: " + why};
    need = sampled_need(*item.op, item.call);
    sampled = true;
    if (need > memory_) return {*this, 0, refused + fmt::format("; on sampled rows {}", size_text(need))};
  }
  if (need > 0) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return taken_ + need <= memory_; });
    taken_ += need;
  }
  return {*this, need, {}, sampled};
}

void Budget::give(std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  taken_ -= bytes;
  freed_.notify_all();
}

std::vector<std::size_t> fair_order(const std::vector<Case>& cases) {
  std::map<std::pair<const OpDef*, Dtype>, std::size_t> seen;
  std::vector<std::size_t> rank(cases.size()), order(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) rank[i] = seen[{cases[i].op, cases[i].call.storage}]++;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank[a] < rank[b]; });
  return order;
}

}  // namespace ampcheck::checks
