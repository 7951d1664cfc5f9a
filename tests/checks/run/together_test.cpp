// SPDX-License-Identifier: Apache-2.0
// Two checks in one process at the same time, each with inputs and options of its own: neither sees the other's.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/run/runner.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/random.h"
#include "src/thread_scope.h"
#include "tests/support/paths.h"
#include "tools/workers/wire.h"

namespace ampcheck::checks {
namespace {

constexpr int kRounds = 3;

/// Rows of normal numbers about `mean`: each file has its own stream, mean and extents.
TensorFile rows(const std::string& stream, std::int64_t count, std::int64_t width, double mean) {
  const auto tensor = [&](const std::string& name, const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(shape.count()));
    const Random random(1, stream + name);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = mean + static_cast<double>(random.below(i, 255)) / 64 - 2;  // exact in bf16
    Tensor out(Dtype::bf16, shape);
    from_doubles(values, out.view());
    return NamedTensor{name, out};
  };
  return {stream, {tensor("x", {count, width}), tensor("weight", {width}), tensor("dy", {count, width})}};
}

/// What somebody wants checked.
struct Asked {
  std::string op;
  TensorFile file;
  RunOptions options;
};

std::vector<Case> cases_of(const Asked& asked) {
  const OpDef& op = *find_op(asked.op);
  const auto data = data_of_file(asked.file);
  std::vector<Case> out;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    OpCall call = file_call(op, data, {});
    call.seed = seed;
    require_file_call(op, call);
    out.push_back({&op, call});
  }
  return out;
}

/// All that a run found, bit for bit, but its time.
std::string found(const Asked& asked) {
  Report report = run_cases(cases_of(asked), asked.options);
  std::string out;
  for (CaseResult& result : report.cases) {
    result.seconds = 0;
    out += tools::wire_text(result);
  }
  for (const std::string& note : report.notes) out += note + "\n";
  return out;
}

Asked at_zero() { return {"rms_norm.dweight_drops_block", rows("about zero", 5, 33, 0), {.jobs = 1, .brief = true}}; }
Asked at_nine() { return {"rms_norm", rows("about nine", 3, 65, 9), {.jobs = 3, .relations = false}}; }

/// Both at once, several times over.
std::vector<std::string> together(const Asked& a, const Asked& b) {
  std::vector<std::string> out(2 * kRounds);
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::barrier start(2);
    const auto run = [&](const Asked& asked, std::size_t at) {
      start.arrive_and_wait();
      out[at] = found(asked);
    };
    std::jthread first([&] { run(a, 2 * round); }), second([&] { run(b, 2 * round + 1); });
  }
  return out;
}

TEST(Together, ChecksOfTwoFilesFindWhatEachFindsAlone) {
  const Asked a = at_zero(), b = at_nine();
  const std::string alone_a = found(a), alone_b = found(b);
  EXPECT_EQ(found(a), alone_a) << "the same bits in every run";
  const std::vector<std::string> both = together(a, b);
  for (std::size_t i = 0; i < both.size(); ++i) EXPECT_TRUE(both[i] == (i % 2 == 0 ? alone_a : alone_b)) << i;
  // A run that got the other's file or options would be seen.
  Asked swapped = a;
  swapped.file = b.file;
  EXPECT_NE(found(swapped), alone_a);
  swapped = b;
  swapped.options.relations = true;
  EXPECT_NE(found(swapped), alone_b);
}

/// What another call set before does not reach one that says nothing.
TEST(Together, ACallWithoutItsFileIsRefused) {
  const Asked a = at_zero();
  std::vector<Case> cases = cases_of(a);
  for (Case& item : cases) item.call.data = nullptr;
  EXPECT_THROW(
      {
        OpCall call = cases.front().call;
        require_file_call(*cases.front().op, call);
      },
      Error);
  EXPECT_THROW(run_cases(cases, {}), Error);
}

TEST(Together, NetsOfTwoFoldersStandBesideEachOther) {
  const auto here = data_of_nets(tests::in_data_root("/tests/data")),
             nowhere = data_of_nets(tests::in_build("/no such folder"));
  std::jthread other([&] {
    for (int i = 0; i < 100; ++i) EXPECT_THROW(real_run("digits", nowhere), EnvironmentError);
  });
  EXPECT_EQ(real_run("digits", here), real_run("digits", here));
  EXPECT_THROW(real_run("digits", nowhere), EnvironmentError);
}

/// The most cases that ran at a time. Each waits until `wanted` run, for a while.
int most_at_a_time(int jobs, int wanted) {
  std::atomic<int> now = 0, most = 0;
  RunOptions options{.jobs = jobs};
  options.run = [&](const OpDef&, const OpCall& call, const How&) {
    const int running = ++now;
    for (int seen = most; seen < running && !most.compare_exchange_weak(seen, running);) {
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(most < wanted ? 2000 : 5);
    while (most < wanted && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --now;
    CaseResult out;
    out.name = call.str(find_op("rms_norm")->signature);
    out.verdict = Verdict::rounding;
    return out;
  };
  Asked asked = at_nine();
  const std::vector<Case> few = cases_of(asked);
  std::vector<Case> cases;
  while (cases.size() < 60) cases.insert(cases.end(), few.begin(), few.end());
  run_cases(cases, options);
  return most;
}

TEST(Together, EachHasItsOwnNumberOfThreads) {
  int one = 0, three = 0;
  {
    std::jthread first([&] { one = most_at_a_time(1, 1); }), second([&] { three = most_at_a_time(3, 3); });
  }
  EXPECT_EQ(one, 1);
  EXPECT_EQ(three, 3);
}

TEST(Together, AScopeOfThreadsEndsAndReachesWhatItHandsOut) {
  const int before = threads();
  {
    const ThreadScope outer(3);
    EXPECT_EQ(threads(), 3);
    std::atomic<int> wrong = 0;
    parallel_for(64, 1, [&](std::int64_t, std::int64_t) { wrong += threads() != 3; });
    EXPECT_EQ(wrong, 0) << "of pieces, whichever thread has them";
    std::jthread([&] { wrong += threads() != before; }).join();
    EXPECT_EQ(wrong, 0) << "of a thread beside it";
    {
      const ThreadScope inner(1), none(0);
      EXPECT_EQ(threads(), 1);
      parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) { wrong += end - begin != 64; });
      EXPECT_EQ(wrong, 0) << "in one piece";
    }
    EXPECT_EQ(threads(), 3);
  }
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace ampcheck::checks
