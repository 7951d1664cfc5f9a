// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/core_reading.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "checks/case/case_run.h"
#include "checks/case/launch.h"
#include "checks/run/contract_evidence.h"
#include "reference/replay/replay.h"
#include "src/rounding.h"
#include "src/tensor_core/multiply.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;
using reference::Primitive;
using tensor_core::Input;
using tensor_core::Instruction;
using tensor_core::Output;
using tensor_core::Unit;

constexpr std::int64_t kLongest = 2048;  ///< extent of the sums

struct Candidate {
  std::string words;
  Accumulator accumulator;
  std::optional<tensor_core::Product> product;  ///< none: chains in fp32
  bool fused = true;                            ///< of chains
};

Input input_of(Dtype storage) {
  return storage == Dtype::fp16     ? Input::fp16
         : storage == Dtype::bf16   ? Input::bf16
         : storage == Dtype::e4m3fn ? Input::e4m3
         : storage == Dtype::e5m2   ? Input::e5m2
                                    : Input::tf32;
}

/// What is tried for a storage type.
std::vector<Candidate> candidates(Dtype storage) {
  const Input type = input_of(storage);
  std::vector<Candidate> out = {{"fp32, by fused multiply-add", Dtype::fp32, {}, true},
                                {"fp32, of rounded products", Dtype::fp32, {}, false}};
  using enum TensorCore;
  for (const TensorCore core : {v100, turing, a100, ada, h100, b200})
    for (const Unit unit : {Unit::mma, Unit::wgmma, Unit::tcgen05})
      for (const int promote : {0, 4})
        for (const Output output : {Output::fp32, Output::fp16}) {
          const bool fp8 = type == Input::e4m3 || type == Input::e5m2;
          if (unit != Unit::mma && !fp8) continue;  // the same as mma
          if (promote > 0 && (!fp8 || output == Output::fp16)) continue;
          const Instruction i{core, type, type, output, tensor_core::largest_k(core, type), unit};
          if (i.k == 0 || !tensor_core::lacking(i).empty()) continue;
          std::string words = "tensor cores of " + name(Accumulator(core));
          words.replace(words.find("tensor_core("), 12, "");
          words.pop_back();
          if (fp8)
            words += std::string(" (") + tensor_core::name(unit) + (promote > 0 ? ", promoted every 4" : "") + ")";
          if (output == Output::fp16) words += ", sums in fp16";
          out.push_back({words, output == Output::fp16 ? Accumulator(Dtype::fp16) : Accumulator(core),
                         tensor_core::Product{i, {.promote = promote}}});
        }
  return out;
}

/// Operands as tensor cores take them: those that are not of the type are rounded to it.
std::vector<std::uint8_t> codes_of(const FloatFormat& format, const std::vector<double>& values) {
  std::vector<std::uint8_t> out(values.size() * static_cast<std::size_t>(format.storage_bytes()));
  encode(format, {}, std::span<const double>(values), out.data());
  return out;
}

/// A matmul node of a graph by one fp32 chain for each element, k ascending.
std::vector<double> chains_of(bool fused, const reference::Node& node, const Shape& a_shape,
                              const std::vector<double>& a, const std::vector<double>& b) {
  const std::int64_t n = node.shape.last(1), m = node.shape.last(0), k = a_shape.last(node.transpose_a ? 1 : 0);
  std::vector<double> out(static_cast<std::size_t>(node.shape.count()));
  std::vector<float> sums(static_cast<std::size_t>(m));
  for (std::int64_t batch = 0; n * m > 0 && batch < node.shape.count() / (n * m); ++batch)
    for (std::int64_t i = 0; i < n; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::int64_t p = 0; p < k; ++p) {
        const auto x =
            static_cast<float>(a[static_cast<std::size_t>(batch * n * k + (node.transpose_a ? p * n + i : i * k + p))]);
        for (std::int64_t j = 0; j < m; ++j) {
          float& sum = sums[static_cast<std::size_t>(j)];
          const auto y = static_cast<float>(
              b[static_cast<std::size_t>(batch * k * m + (node.transpose_b ? j * k + p : p * m + j))]);
          sum = fused ? std::fma(x, y, sum) : sum + x * y;
        }
      }
      std::copy(sums.begin(), sums.end(), out.begin() + (batch * n + i) * m);
    }
  return out;
}

/// A matmul node of a graph on tensor cores.
std::vector<double> product_of(const tensor_core::Product& product, const reference::Node& node, const Shape& a_shape,
                               const std::vector<double>& a, const std::vector<double>& b) {
  const std::int64_t n = node.shape.last(1), m = node.shape.last(0), k = a_shape.last(node.transpose_a ? 1 : 0);
  const FloatFormat& format =
      product.instruction.a == Input::tf32 ? kFp32 : tensor_core::format_of(product.instruction.a);
  const int bytes = format.storage_bytes();
  const std::vector<std::uint8_t> x = codes_of(format, a), y = codes_of(format, b);
  std::vector<float> d(static_cast<std::size_t>(node.shape.count()));
  for (std::int64_t batch = 0; n * m > 0 && batch < node.shape.count() / (n * m); ++batch) {
    tensor_core::Codes left{x.data() + batch * n * k * bytes, bytes, n, k, k, 1},
        right{y.data() + batch * k * m * bytes, bytes, k, m, m, 1};
    if (node.transpose_a) std::tie(left.row_stride, left.column_stride) = std::pair{std::int64_t{1}, n};
    if (node.transpose_b) std::tie(right.row_stride, right.column_stride) = std::pair{std::int64_t{1}, k};
    tensor_core::multiply(product, left, right, nullptr, d.data() + batch * n * m);
  }
  return {d.begin(), d.end()};
}

/// Nodes that a target is computed from, ascending: arguments come before what they are arguments of.
std::set<int> ancestors(const reference::Graph& graph, int target) {
  std::set<int> out;
  std::vector<int> open = {target};
  while (!open.empty()) {
    const int id = open.back();
    open.pop_back();
    if (!out.insert(id).second) continue;
    for (const int arg : graph.node(id).args) open.push_back(arg);
  }
  return out;
}

/// What a kernel would write whose products are the candidate's.
std::vector<double> values_of(const Candidate& candidate, const reference::Recording& recording, Leaves leaves,
                              const Expr& target) {
  const reference::Graph& graph = *recording.graph;
  const reference::ReplayOptions options;
  for (const int id : ancestors(graph, target.id)) {
    const reference::Node& node = graph.node(id);
    if (node.primitive != Primitive::matmul) continue;
    const Expr left = recording.graph->at(node.args[0]), right = recording.graph->at(node.args[1]);
    const std::vector<std::vector<double>> operands = reference::replay(graph, leaves, {left, right}, options);
    const Shape& shape = graph.node(node.args[0]).shape;
    leaves.emplace_back(recording.graph->at(id),
                        candidate.product ? product_of(*candidate.product, node, shape, operands[0], operands[1])
                                          : chains_of(candidate.fused, node, shape, operands[0], operands[1]));
  }
  return reference::replay(graph, leaves, {target}, options).front();
}

/// Each dimension long in turn: some of the sums are long then. Positive numbers tell most, since no error makes up for
/// another.
std::vector<OpCall> long_calls(const OpSignature& signature, Dtype storage, std::uint64_t seed) {
  std::vector<OpCall> out;
  for (const DimSpec& longest : signature.dims)
    for (const auto& [range, more] : {std::pair{"positive", 0}, {"positive", 1}, {"positive", 2}, {"normal", 0}}) {
      OpCall call = default_call(signature, storage);
      call.seed = seed + static_cast<std::uint64_t>(more);
      call.range = range;
      for (const DimSpec& dim : signature.dims) call.dims[dim.symbol] = &dim == &longest ? kLongest : dim.standard[1];
      if (!signature.valid || signature.valid(call.dims, call.attributes)) out.push_back(std::move(call));
    }
  return out;
}

/// Whether a target is made of a long product of matrices, and of nothing that is too large to be computed often.
bool tells(const reference::Recording& recording, const Expr& target) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  const reference::Graph& graph = *recording.graph;
  bool out = false;
  for (const int id : ancestors(graph, target.id)) {
    const reference::Node& node = graph.node(id);
    if (node.shape.count() > kLargest) return false;
    if (node.primitive == Primitive::matmul)
      out |= graph.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0) >= kLongest;
  }
  return out;
}

/// Counts of one tensor under every candidate, over all forms.
struct Counts {
  std::vector<std::int64_t> equal;
  std::vector<std::vector<double>> bits;  ///< what each candidate gave in the first form, over all tensors
  std::int64_t told = 0;
};

void count(const std::vector<Candidate>& tried, const reference::Recording& recording, const Leaves& leaves,
           const Expr& target, const FloatFormat& format, const std::vector<double>& got, Counts& out) {
  std::vector<std::vector<double>> values;
  for (const Candidate& candidate : tried) {
    values.push_back(values_of(candidate, recording, leaves, target));
    round_values(format, RoundingMode{}, values.back(), values.back());
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::all_of(values.begin(), values.end(), [&](const auto& v) { return same(v[i], values.front()[i]); }))
      continue;
    ++out.told;
    for (std::size_t k = 0; k < tried.size(); ++k) {
      out.equal[k] += same(values[k][i], got[i]);
      out.bits[k].push_back(values[k][i]);
    }
  }
}

/// The counts of the calls along one form.
Counts counts_of(const OpDef& op, std::size_t form, const std::vector<OpCall>& calls,
                 const std::vector<Candidate>& tried) {
  Counts out{std::vector<std::int64_t>(tried.size()), std::vector<std::vector<double>>(tried.size()), 0};
  const RunOptions options;
  constexpr std::int64_t kPlenty = 1000;
  for (const OpCall& call : calls) {
    if (out.told >= kPlenty) break;
    CaseRun run(op, call, options);
    const reference::Recording& recording = run.reference.recording(form);
    const auto& outputs = nodes_of(recording, Pass::forward);
    if (std::none_of(outputs.begin(), outputs.end(), [&](const auto& o) { return tells(recording, o.second); }))
      continue;
    if (!run.reference.inputs_finite()) continue;
    const LaunchTensors tensors = run.forward_tensors(run.reference.inputs(), 0);
    const LaunchResult result = launch(op.kernel.forward, tensors, call.attributes, Device::cpu);
    Leaves leaves;
    for (const auto& [name, node] : recording.inputs) leaves.emplace_back(node, run.reference.inputs().at(name));
    for (const Written& output : run.outputs)
      for (const auto& [name, node] : outputs)
        if (name == output.name && !output.saved && tells(recording, node) && !run.accumulates(name))
          count(tried, recording, leaves, node, format(output.dtype), to_doubles(result.written.at(name).view()), out);
  }
  return out;
}

/// Those that give the same bits everywhere are one.
std::vector<CoreReading> merged(const std::vector<Candidate>& tried, const Counts& counts) {
  std::vector<CoreReading> out;
  std::vector<std::size_t> first;
  for (std::size_t k = 0; k < tried.size(); ++k) {
    const auto same_bits = std::find_if(first.begin(), first.end(), [&](std::size_t other) {
      return std::equal(counts.bits[k].begin(), counts.bits[k].end(), counts.bits[other].begin(), same);
    });
    if (same_bits == first.end()) {
      first.push_back(k);
      out.push_back({tried[k].words, tried[k].accumulator, counts.equal[k]});
      continue;
    }
    CoreReading& reading = out[static_cast<std::size_t>(same_bits - first.begin())];
    std::string words = tried[k].words;
    constexpr std::string_view kCores = "tensor cores of ";
    if (reading.words.starts_with(kCores) && words.starts_with(kCores)) words.erase(0, kCores.size());
    reading.words += " or " + words;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const CoreReading& a, const CoreReading& b) { return a.equal > b.equal; });
  return out;
}

}  // namespace

const CoreReading* CoreReadings::found() const {
  constexpr std::int64_t kEnough = 12;
  if (all.empty() || told < kEnough || all.front().equal < told) return nullptr;
  return all.size() < 2 || all[1].equal < told ? &all.front() : nullptr;
}

CoreReadings read_cores(const OpDef& op, Dtype storage, std::uint64_t seed) {
  CoreReadings best;
  if (storage == Dtype::fp64) return best;
  const std::vector<Candidate> tried = candidates(storage);
  const std::vector<OpCall> calls = long_calls(op.signature, storage, seed);
  for (std::size_t form = 0; form < op.forms.size(); ++form) {
    const Counts counts = counts_of(op, form, calls, tried);
    if (counts.told == 0) continue;
    CoreReadings read{merged(tried, counts), counts.told};
    const auto share = [](const CoreReadings& r) {
      return r.all.empty() ? -1.0 : static_cast<double>(r.all.front().equal) / static_cast<double>(r.told);
    };
    if (share(read) > share(best)) best = std::move(read);
    if (share(best) == 1) break;
  }
  return best;
}

}  // namespace ampcheck::checks
