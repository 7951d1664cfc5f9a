// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/ptx_launcher.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "src/launch_facts.h"
#include "src/launch_notes.h"
#include "src/ptx/program.h"
#include "src/ptx/text.h"

namespace ampcheck::checks {

namespace {

constexpr std::uintmax_t kMostText = std::uintmax_t{64} << 20;
constexpr double kMostWorkspace = 17179869184.0;

std::string text_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in)
    throw EnvironmentError("[kernel] got '" + path + "', which cannot be read, want PTX or CUDA source");
  if (size > kMostText)
    throw EnvironmentError("[kernel] got '" + path + "' of " + std::to_string(size) + " bytes, want at most 64 MiB");
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::size_t size_of(LauncherArgument::Type type) {
  using enum LauncherArgument::Type;
  switch (type) {
    case boolean: return 1;
    case i32:
    case u32:
    case f32: return 4;
    default: return 8;
  }
}

/// The memory of a tensor: from its first to its last byte, whatever lies between.
void add_region(const ac_tensor* tensor, bool initialised, std::vector<ptx::Region>& regions) {
  if (tensor == nullptr || tensor->dl.data == nullptr) return;
  const ac_dltensor& dl = tensor->dl;
  const std::int64_t size = dl.dtype.bits / 8;
  std::int64_t low = 0, high = 1;
  for (int i = 0; i < dl.ndim; ++i) {
    if (dl.shape[i] == 0) return;
    const std::int64_t reach = (dl.shape[i] - 1) * dl.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(dl.data) + static_cast<std::uint64_t>(low * size);
  for (ptx::Region& known : regions)
    if (known.address == address) return;  // an output over its input
  regions.push_back({tensor->name, address, static_cast<std::uint64_t>((high - low) * size), initialised});
}

void require_kernel(const ptx::Program& program, const std::string& symbol,
                    const std::vector<LauncherArgument>& arguments) {
  const ptx::Routine* const kernel = program.entry(symbol);
  if (kernel == nullptr) {
    std::string list;
    for (const ptx::Routine& known : program.functions)
      if (known.entry && known.defined) list += (list.empty() ? "" : ", ") + known.name;
    throw Error("kernel '" + symbol + "', got none in '" + program.text.path + "', want one of " +
                (list.empty() ? "none, for it has no kernel" : list));
  }
  if (kernel->params.size() != arguments.size())
    throw Error("arguments of '" + symbol + "', got " + std::to_string(arguments.size()) + ", want " +
                std::to_string(kernel->params.size()));
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (kernel->params[i].bytes != size_of(arguments[i].type()))
      throw Error("argument '" + arguments[i].text() + "' of '" + symbol + "', got " +
                  std::to_string(size_of(arguments[i].type())) + " bytes, want the " +
                  std::to_string(kernel->params[i].bytes) + " that the kernel takes");
}

}  // namespace

std::string ptx_of_file(const std::string& path, const std::vector<std::string>& flags) {
  return path.ends_with(".cu") ? ptx_of_cuda(path, flags) : text_of(path);
}

const ptx::Program& PtxModule::program() {
  const std::lock_guard lock(mutex_);
  if (program_ != nullptr) return *program_;
  program_ = ptx::decode(ptx::parse(ptx_of_file(path_, flags_), path_), ptx::decode_options());
  return *program_;
}

void PtxLauncher::resolve() {
  const ptx::Program& program = description_.module->program();
  for (const LauncherStep& step : description_.call.steps)
    for (const auto& [storage, symbol] : step.symbols) require_kernel(program, symbol, step.arguments);
}

std::int32_t PtxLauncher::run(const ac_call& call) {
  try {
    launch(call);
    return 0;
  } catch (const std::exception& error) {
    call.host->set_error(call.host->context, error.what());
    return -1;
  }
}

std::vector<std::uint8_t> PtxLauncher::parameters(const ptx::Routine& kernel,
                                                  const std::vector<LauncherArgument::Value>& values) const {
  std::vector<std::uint8_t> out(kernel.param_bytes + 16);
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(out.data() + kernel.param_at[i], &values[i],
                std::min<std::size_t>(kernel.params[i].bytes, sizeof values[i]));
  return out;
}

void PtxLauncher::add_tensors(const ac_call& call, std::vector<ptx::Region>& regions) const {
  for (int i = 0; i < call.input_count; ++i) add_region(call.inputs[i], true, regions);
  const auto results = [&](const ac_tensor* const* list, int count, bool written) {
    if (list == nullptr) return;
    for (int i = 0; i < count; ++i) {
      if (list[i] == nullptr) continue;
      const bool adds = std::find(description_.accumulates.begin(), description_.accumulates.end(), list[i]->name) !=
                        description_.accumulates.end();
      add_region(list[i], !written || adds, regions);
    }
  };
  const bool forward = call.outputs != nullptr;
  results(call.cotangents, call.output_count, false);
  results(call.gradient_cotangents, call.input_count, false);
  results(call.saved, call.saved_count, forward);
  results(call.outputs, call.output_count, true);
  results(call.gradients, call.input_count, call.gradient_cotangents == nullptr);
  results(call.cotangent_gradients, call.output_count, true);
}

void PtxLauncher::launch(const ac_call& call) {
  ArgumentContext context{call, names_};
  std::vector<ptx::Region> regions;
  add_tensors(call, regions);
  std::deque<std::vector<std::uint8_t>> workspaces;
  for (const LauncherWorkspace& wanted : description_.call.workspaces) {
    const double bytes = wanted.bytes.evaluate(context, true);
    if (!(bytes >= 0 && bytes <= kMostWorkspace))
      throw Error(wanted.name + ", got " + std::to_string(bytes) + " bytes, want 0 to 2^34");
    constexpr std::uint8_t kUnwritten = 0xff;
    std::vector<std::uint8_t>& memory =
        workspaces.emplace_back(static_cast<std::size_t>(bytes) + 256, wanted.zeroed ? std::uint8_t{0} : kUnwritten);
    std::uint8_t* const first = memory.data() + ((256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) & 255);
    context.workspaces.push_back({first, static_cast<std::int64_t>(bytes)});
    regions.push_back(
        {wanted.name, reinterpret_cast<std::uintptr_t>(first), static_cast<std::uint64_t>(bytes), wanted.zeroed});
  }
  for (std::size_t step = 0; step < description_.call.steps.size(); ++step) {
    launch_step(step, context, regions);
    // What the first kernel has left out is not known to the second: it sees memory that may hold something.
    for (ptx::Region& region : regions) region.initialised = true;
  }
}

void PtxLauncher::launch_step(std::size_t at, const ArgumentContext& context, std::vector<ptx::Region> regions) const {
  const ac_call& call = context.call;
  const LauncherStep& step = description_.call.steps[at];
  const PtxExtents& extents = description_.extents[at];
  const std::string& symbol = step.symbol(call.storage);
  const ptx::Program& program = description_.module->program();
  ptx::Launch launch;
  launch.regions = std::move(regions);
  std::vector<LauncherArgument::Value> values;
  for (const LauncherArgument& argument : step.arguments) {
    if (argument.narrowed(call) != nullptr)
      throw Error("argument '" + argument.text() +
                  "', got an index in int32, want int64: device ptx passes indices as they are");
    values.push_back(argument.evaluate(context));
  }
  launch.params = parameters(*program.entry(symbol), values);
  const auto extent = [&](const ArgumentValue& value, const char* what) {
    const double out = value.evaluate(context, true);
    if (!(out >= 0 && out <= 4294967295.0))
      throw Error(std::string(what) + ", got " + std::to_string(out) + ", want 0 to 2^32 - 1");
    return static_cast<std::uint32_t>(out);
  };
  for (std::size_t i = 0; i < 3; ++i) {
    launch.grid[i] = extent(extents.grid[i], "grid");
    launch.block[i] = extent(extents.block[i], "block");
  }
  if (extents.shared) launch.dynamic_shared = extent(*extents.shared, "shared");
  // A GPU does not launch an empty grid; who calls it has to look, and a launch of nothing is what that comes to.
  if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) return;
  launch.cancelled = [&] { return call.host->should_cancel(call.host->context) != 0; };
  launch.schedule = next_schedule();
  launch.follow = wants_line_errors(symbol);
  ptx::Outcome outcome = ptx::run(program, symbol, launch);
  for (LaunchNote& note : outcome.notes) note_launch(std::move(note));
  keep_line_errors(outcome.lines);
  const bool last = at + 1 == description_.call.steps.size();
  for (LaunchFact& fact : outcome.facts)  // what this kernel leaves unwritten a later one may write
    if (last || fact.kind != LaunchFact::Kind::unwritten) keep_launch_fact(std::move(fact));
  if (outcome.cancelled) throw Error("the kernel did not end in time");
}

}  // namespace ampcheck::checks
