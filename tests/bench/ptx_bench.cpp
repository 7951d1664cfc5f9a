// SPDX-License-Identifier: Apache-2.0
// Device ptx: time of one warp instruction, with the watch over races and reads and without, and with the shadow in
// fp64 of --lines. The goal is 10 ns; 12 is measured, 16 with the watch. The profile of it: 28 % are the correctly
// rounded 2^x of the softmax, a seventh of its instructions; a quarter is the loop over instructions and its masks, a
// tenth loads and stores with their bounds. Without 2^x an instruction takes 9 ns.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "src/ptx/run.h"
#include "src/ptx/text.h"
#include "tests/support/softmax_ptx.h"

namespace ampcheck {
namespace {

void launch_softmax(benchmark::State& state, bool watch, bool follow) {
  const auto program = ptx::decode(ptx::parse(testing::softmax_ptx(), "softmax.ptx"));
  constexpr std::int32_t kRows = 16, kColumns = 1025;
  std::vector<float> x(static_cast<std::size_t>(kRows) * kColumns), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97) / 16;
  ptx::Launch launch;
  launch.grid = {kRows, 1, 1};
  launch.block = {64, 1, 1};
  launch.watch = watch;
  launch.follow = follow;
  launch.params.resize(32);
  const std::uint64_t pointers[2] = {reinterpret_cast<std::uintptr_t>(x.data()),
                                     reinterpret_cast<std::uintptr_t>(y.data())};
  std::memcpy(launch.params.data(), pointers, sizeof pointers);
  std::memcpy(launch.params.data() + 16, &kColumns, sizeof kColumns);
  launch.regions = {{"x", pointers[0], x.size() * 4, true}, {"y", pointers[1], y.size() * 4, false}};
  double instructions = 0;
  for (auto _ : state) instructions += static_cast<double>(ptx::run(*program, "softmax", launch).warp_instructions);
  state.counters["warp_instruction"] =
      benchmark::Counter(instructions, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(launch_softmax, watched, true, false);
BENCHMARK_CAPTURE(launch_softmax, unwatched, false, false);
BENCHMARK_CAPTURE(launch_softmax, followed, true, true);

}  // namespace
}  // namespace ampcheck
