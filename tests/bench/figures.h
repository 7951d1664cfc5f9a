// SPDX-License-Identifier: Apache-2.0
// Figures with a goal: each is measured next to its baseline in the same run, and all stand in one table at the end.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace ampcheck::bench {

enum class Goal { at_most, at_least };

/// Puts one line into the table; a second measurement of the same figure replaces the first.
void record_figure(const std::string& figure, Goal goal, double wanted, double measured, const std::string& unit = "");

/// Prints "figure | goal | measured | met" for everything recorded. False if a goal was missed.
bool print_figures();

/// Fastest run of each of two, in alternating repetitions, so that a busy machine slows both. In seconds.
struct Pair {
  double baseline = 0, subject = 0;
};

using Work = std::function<void()>;
/// `per_turn`: how often the baseline runs in its turn, so that a short one is long against the clock.
Pair interleaved(benchmark::State& state, int per_turn, const Work& baseline, const Work& subject);

double seconds_of(const Work& work);

/// Registers a benchmark with manual time; `repetitions` turns.
void add_figure(const std::string& name, int repetitions, std::function<void(benchmark::State&)> body);

}  // namespace ampcheck::bench
