// SPDX-License-Identifier: Apache-2.0
// Whole processes: the time of `ampcheck check` and `ampcheck list`, and the memory of one check.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "checks/case/case_reference.h"
#include "checks/scaler/call_checks.h"
#include "checks/scaler/library.h"
#include "src/amp/scale_rule.h"
#include "src/error.h"
#include "tests/bench/figures.h"
#include "tests/support/paths.h"

namespace ampcheck::bench {

namespace {

/// One run of the program with its output thrown away.
struct Process {
  double seconds = 0, cpu_seconds = 0;
  double peak_bytes = 0;
  int exit_code = -1;
};

/// Peak of a running process so far. Not rusage's: that one keeps the peak from before exec, which is this program's
/// own.
double peak_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024;
  return 0;
}

Process run_program(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {tests::in_build("/ampcheck")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = vfork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (child < 0) throw Error("[bench] vfork failed");
  int status = 0;
  rusage usage{};
  Process out;
  while (wait4(child, &status, WNOHANG, &usage) == 0) {
    out.peak_bytes = std::max(out.peak_bytes, peak_of(child));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto time = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  out.cpu_seconds = time(usage.ru_utime) + time(usage.ru_stime);
  out.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (out.exit_code != 0)
    throw Error("[bench] exit code of ampcheck " + arguments.front() + ", got " + std::to_string(out.exit_code) +
                ", want 0");
  return out;
}

void check_all(benchmark::State& state) {
  Process best;
  for (auto _ : state) {
    best = run_program({"check"});
    state.SetIterationTime(best.seconds);
  }
  state.counters["cpu_seconds"] = best.cpu_seconds;
  record_figure("ampcheck check, all ops, default cases", Goal::at_most, 60, best.seconds, "s");
  record_figure("  of which processor time / 2", Goal::at_most, 60, best.cpu_seconds / 2, "s");
}

void list_ops(benchmark::State& state) {
  double best = 1e30;
  for (auto _ : state) {
    const double t = run_program({"list"}).seconds;
    best = std::min(best, t);
    state.SetIterationTime(t);
  }
  record_figure("ampcheck list", Goal::at_most, 50, best * 1e3, "ms");
}

/// What a case spends outside its own check: the time between its two lines of the journal, less the seconds that it
/// reports. The middle one of all cases, in microseconds.
double overhead_of_cases(const std::string& isolation) {
  const std::string journal =
      (std::filesystem::temp_directory_path() / ("ampcheck_bench." + std::to_string(getpid()) + ".journal")).string();
  run_program({"check", tests::in_build("/custom_ops/hostile.so"), "prints", "--regimes", "quick", "--shapes",
               "N=2,D=3", "--seeds", "100", "-j", "1", "--isolation", isolation, "--journal", journal});
  std::ifstream file(journal);
  const auto number = [](const std::string& line, const std::string& key) {
    return std::stod(line.substr(line.find("\"" + key + "\":") + key.size() + 3));
  };
  std::vector<double> out;
  double started = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"event\":\"start\"") != std::string::npos) started = number(line, "time");
    if (line.find("\"event\":\"done\"") != std::string::npos)
      out.push_back(1e6 * (number(line, "time") - started - number(line, "seconds")));
  }
  std::remove(journal.c_str());
  if (out.size() < 100)
    throw Error("[bench] cases in the journal, got " + std::to_string(out.size()) + ", want 100 or more");
  std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(out.size() / 2), out.end());
  return out[out.size() / 2];
}

void worker_overhead(benchmark::State& state) {
  double best = 1e30;
  for (auto _ : state) {
    const double t = overhead_of_cases("worker") - overhead_of_cases("none");
    best = std::min(best, t);
    state.SetIterationTime(t * 1e-6);
  }
  record_figure("a case in a worker process, more than in-process", Goal::at_most, 50, best, "us");
}

/// The search through the calls of a scaler in a library, whose process is asked for each.
void search_of_library(benchmark::State& state) {
  const std::string library = tests::in_build("/custom_ops/my_scaler_none.so");
  const auto subject = checks::scaler::library_scaler(library);
  const auto calls = static_cast<double>(checks::scaler::audit_calls(*subject, scale_rule("torch")).calls);
  double best = 1e30;
  for (auto _ : state) {
    const double seconds = run_program({"audit", "scaler", library}).seconds;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  record_figure("search through all sequences of calls of a library's scaler, in its own process", Goal::at_least, 1e6,
                calls / best, "calls/s");
}

/// Bytes of the tensors of a forward and a backward call in their storage types.
double tensor_bytes(const checks::OpDef& op, const OpCall& call) {
  double total = 0;
  std::map<std::string, Shape> shapes;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) {
      const double size = static_cast<double>(call.shape(spec).count()) * static_cast<double>(bytes(call.dtype(spec)));
      total += is_float(call.dtype(spec)) ? 2 * size : size;  // with its gradient
    }
  checks::NamedValues inputs;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec))
      inputs[spec.name] =
          std::vector<double>(is_float(call.dtype(spec)) ? 0 : static_cast<std::size_t>(call.shape(spec).count()));
  checks::CaseReference reference(op, call, inputs);
  for (const OutputSpec& spec : op.signature.outputs)
    total += 2 * static_cast<double>(reference.recording().output(spec.name).shape().count() *
                                     bytes(dtype_of(spec.type, call.storage)));
  return total;
}

void memory_of(benchmark::State& state, const std::string& case_name, bool row_wise) {
  const checks::OpDef& op = *checks::find_op(op_of(case_name));
  const double tensors = tensor_bytes(op, parse_call(case_name, op.signature));
  double peak = 0;
  for (auto _ : state) {
    const Process process = run_program({"check", case_name});
    peak = process.peak_bytes;
    state.SetIterationTime(process.seconds);
  }
  const double times = row_wise ? (peak - 0x1p26) / tensors : peak / tensors;
  state.counters["peak_MiB"] = peak / 0x1p20;
  record_figure("memory of the check of " + case_name + (row_wise ? ", less 64 MiB" : "") + " / tensors", Goal::at_most,
                row_wise ? 12 : 40, std::max(0.0, times), "x");
}

/// The tools/test that made this build, if it began with nothing.
void cold_test(benchmark::State& state) {
  double seconds = 0;
  std::ifstream(tests::in_build("/results/cold_test_seconds")) >> seconds;
  for (auto _ : state) state.SetIterationTime(seconds);
  if (seconds > 0)
    record_figure("tools/test from nothing, as it made this build", Goal::at_most, 20 * 60, seconds, "s");
  else
    state.SkipWithError("this build was not made by a cold tools/test");
}

const bool registered = [] {
  add_figure("program/cold_test", 1, cold_test);
  add_figure("program/check", 1, check_all);
  add_figure("program/list", 20, list_ops);
  add_figure("program/worker", 5, worker_overhead);
  add_figure("program/search_of_library", 5, search_of_library);
  const auto memory = [](const std::string& name, bool row_wise) {
    add_figure("memory/" + name, 1, [=](benchmark::State& state) { memory_of(state, name, row_wise); });
  };
  for (const char* op : {"softmax", "gelu", "layer_norm", "rms_norm"})
    memory(std::string(op) + "(x=bf16[512,4096])", true);
  memory("linear(x=bf16[512,1024],weight=bf16[1024,1024])", false);
  memory("conv2d(x=bf16[4,16,64,64],weight=bf16[32,16,3,3])", false);
  memory("attention(q=bf16[2,4,256,64])", false);
  memory("attention(q=bf16[1,8,1024,64])", false);  // scores are what is large there
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
