// SPDX-License-Identifier: Apache-2.0
// The captures of tensor_core_captures.h against the intervals of the contract.
#pragma once

#include <gtest/gtest.h>

#include "reference/ball/ball.h"
#include "tests/support/tensor_core_captures.h"

namespace ampcheck::tests {

/// The interval of each line, [low, high] in the output type, under an accumulator.
inline std::vector<std::pair<double, double>> intervals_of(const CaptureFile& file, const Accumulator& accumulator) {
  using namespace ampcheck::reference;
  const auto n = static_cast<std::int64_t>(file.lines.size());
  const auto k = static_cast<std::int64_t>(file.lines.front().products.size());
  Graph graph;
  const Expr a = graph.input("a", {n, 1, k});
  const Expr b = graph.input("b", {n, k, 1});
  const Expr c = graph.input("c", {n, 1, 1});
  const Expr d = matmul(a, b) + c;
  Arithmetic arithmetic;
  if (accumulator.core != TensorCore::none)
    arithmetic.products = {
        .core = accumulator.core, .storage = file.operand(), .leaves = {{"a", file.operand()}, {"b", file.operand()}}};
  BallEvaluator balls(graph, arithmetic, {d});
  std::vector<double> values[3];
  for (const Captured& line : file.lines) {
    for (const Factors& p : line.products) {
      values[0].push_back(p.a);
      values[1].push_back(p.b);
    }
    values[2].push_back(line.c);
  }
  balls.set(a, values[0]);
  balls.set(b, values[1]);
  balls.set(c, values[2]);
  balls.run({d});
  const Ball& ball = balls.result(d);
  const FloatFormat& format = file.out == "fp16" ? kFp16 : kFp32;
  std::vector<std::pair<double, double>> out;
  for (std::ptrdiff_t i = 0; i < n; ++i)
    out.emplace_back(nearest(format, ball.v[i] - ball.r[i]), nearest(format, ball.v[i] + ball.r[i]));
  return out;
}

/// How many lines lie outside of their intervals.
inline int outside(const CaptureFile& file, const Accumulator& accumulator) {
  const auto intervals = intervals_of(file, accumulator);
  int out = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i)
    out += !(file.lines[i].d >= intervals[i].first && file.lines[i].d <= intervals[i].second);
  return out;
}

/// Every `every`-th line: the model gives the captured bits, which lie in the interval of their generation and of any.
/// Where cores keep 13 bits, some do not under fp32 accumulation.
inline void expect_captures_in_bounds(int every) {
  int files = 0;
  for (const std::filesystem::path& path : capture_files()) {
    const CaptureFile file = read_captures(path, every);
    ASSERT_GT(file.lines.size(), 0u) << path;
    int differ = 0;
    for (const Captured& line : file.lines) differ += file.model(line) != line.d;
    EXPECT_EQ(differ, 0) << file.name << ": the model is another machine";
    ++files;
    if (file.is_fp8() && file.out == "fp16") continue;  // two blocks, each rounded to fp16: that is another accumulator
    EXPECT_EQ(outside(file, file.accumulator()), 0) << file.name;
    EXPECT_EQ(outside(file, TensorCore::any), 0) << file.name << " as any";
    if (file.without_c()) {
      EXPECT_GT(outside(file, Dtype::fp32), 0) << file.name << " is no fp32 accumulation";
    }
  }
  EXPECT_GT(files, 30);
}

}  // namespace ampcheck::tests
