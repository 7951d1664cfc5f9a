// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/figures.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "src/freed_memory.h"
#include "src/parallel.h"
#include "src/rounding.h"

namespace ampcheck::bench {

namespace {

struct Figure {
  std::string name, unit;
  Goal goal;
  double wanted, measured;
  bool met() const { return goal == Goal::at_most ? measured <= wanted : measured >= wanted; }
};

std::vector<Figure>& figures() {
  static std::vector<Figure> list;
  return list;
}

/// The text after "key :" in a file of the system; empty if there is none.
std::string system_fact(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

}  // namespace

void record_figure(const std::string& figure, Goal goal, double wanted, double measured, const std::string& unit) {
  const Figure entry{figure, unit, goal, wanted, measured};
  for (Figure& known : figures())
    if (known.name == figure) {
      known = entry;
      return;
    }
  figures().push_back(entry);
}

bool print_figures() {
  if (figures().empty()) return true;
  std::size_t width = 6;
  for (const Figure& f : figures()) width = std::max(width, f.name.size());
  bool all = true;
  std::printf("\n%-*s | %-14s | %-14s |\n", static_cast<int>(width), "figure", "goal", "measured");
  for (const Figure& f : figures()) {
    all &= f.met();
    char goal[64], measured[64];
    std::snprintf(goal, sizeof goal, "%s %.4g %s", f.goal == Goal::at_most ? "<=" : ">=", f.wanted, f.unit.c_str());
    std::snprintf(measured, sizeof measured, "%.3g %s", f.measured, f.unit.c_str());
    std::printf("%-*s | %-14s | %-14s | %s\n", static_cast<int>(width), f.name.c_str(), goal, measured,
                f.met() ? "met" : "NOT MET");
  }
  return all;
}

double seconds_of(const Work& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

Pair interleaved(benchmark::State& state, int per_turn, const Work& baseline, const Work& subject) {
  Pair best{1e30, 1e30};
  baseline();
  subject();  // pages and pools
  for (auto _ : state) {
    for (int k = 0; k < per_turn; ++k) best.baseline = std::min(best.baseline, seconds_of(baseline));
    const double t = seconds_of(subject);
    best.subject = std::min(best.subject, t);
    state.SetIterationTime(t);
  }
  state.counters["baseline_ms"] = best.baseline * 1e3;
  state.counters["subject_ms"] = best.subject * 1e3;
  return best;
}

void add_figure(const std::string& name, int repetitions, std::function<void(benchmark::State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(repetitions);
}

}  // namespace ampcheck::bench

int main(int argc, char** argv) {
  using namespace ampcheck;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  set_threads(1);
  keep_freed_memory();
  Eigen::setNbThreads(1);
  benchmark::AddCustomContext("machine", bench::system_fact("/proc/cpuinfo", "model name"));
  benchmark::AddCustomContext("simd target of the conversions", std::string(simd_targets().front()));
  benchmark::AddCustomContext("simd of Eigen and of the kernels", Eigen::SimdInstructionSetsInUse());
  benchmark::AddCustomContext("threads", "1 against 1, by processor time; whole programs: all cores, by wall clock");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  bench::print_figures();
  return 0;
}
