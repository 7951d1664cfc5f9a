// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "src/api/ampcheck/ampcheck_scaler.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMostState = std::int64_t{1} << 30;  ///< bytes

/// What `symbol` of a library returns. `kind`: "scaler".
const void* exported(const std::string& path, const char* kind, const char* symbol) {
  const std::string where = fmt::format("[{}] ", kind);
  if (std::error_code error; !std::filesystem::is_regular_file(path, error))
    throw EnvironmentError(where + "got '" + path + "', which is no file, want a shared library");
  // dlopen searches the system for a name without a slash; the user means a file.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw EnvironmentError(where + "got '" + path +
                           "', which cannot be loaded: " + (why == nullptr ? "no reason given" : why));
  }
  const auto describe = reinterpret_cast<const void* (*)()>(dlsym(library, symbol));
  if (describe == nullptr)
    throw LibraryError(
        fmt::format("[{}] got a library without the function {}, want one built with "
                    "ampcheck/ampcheck_scaler.h",
                    path, symbol));
  const void* table = describe();
  if (table == nullptr) throw LibraryError(fmt::format("[{}] {} got null, want a {}", path, symbol, kind));
  return table;
}

/// A library's struct in our size: fields that it does not have are null.
template <class Table>
Table whole(const void* table, const std::string& path, std::size_t least) {
  std::uint32_t size = 0, abi = 0;
  std::memcpy(&size, table, sizeof size);
  std::memcpy(&abi, static_cast<const std::byte*>(table) + sizeof size, sizeof abi);
  if (abi != AMPCHECK_SCALER_ABI)
    throw LibraryError(fmt::format("[{}] abi, got {}, want {}", path, abi, AMPCHECK_SCALER_ABI));
  if (size < least) throw LibraryError(fmt::format("[{}] struct_size, got {}, want at least {}", path, size, least));
  Table out{};
  std::memcpy(&out, table, std::min<std::size_t>(size, sizeof(Table)));
  return out;
}

void require(const void* function, const std::string& path, const char* what) {
  if (function == nullptr) throw LibraryError(fmt::format("[{}] {}, got null, want a function", path, what));
}

template <class Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

/// One object of a library's table, and what its last call said.
template <class Table>
class Object {
 public:
  template <class Settings>
  Object(const Table& table, const std::string& path, const Settings& setup) : table_(table), path_(path) {
    self_ = table_.create(&setup);
    if (self_ == nullptr) throw LibraryError(fmt::format("[{}] create, got null, want an object", path_));
  }
  ~Object() { table_.destroy(self_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void* self() const { return self_; }
  std::string why(std::int32_t code) const {
    const char* text = table_.last_error == nullptr ? nullptr : table_.last_error(self_);
    return text == nullptr || *text == '\0' ? fmt::format("code {}", code) : std::string(text);
  }
  /// Its state into a new object's. The code of load.
  std::int32_t hand_over(Object& to) const {
    std::string state(1 << 16, '\0');
    std::int64_t bytes = table_.save(self_, state.data(), static_cast<std::int64_t>(state.size()));
    if (bytes > static_cast<std::int64_t>(state.size()) && bytes <= kMostState) {
      state.resize(static_cast<std::size_t>(bytes));
      bytes = table_.save(self_, state.data(), bytes);
    }
    if (bytes < 0 || bytes > static_cast<std::int64_t>(state.size()))
      throw LibraryError(fmt::format("[{}] save, got {} bytes, want 0 to {}", path_, bytes, state.size()));
    return table_.load(to.self_, state.data(), bytes);
  }

 private:
  const Table& table_;
  const std::string& path_;
  void* self_ = nullptr;
};

struct Optimizer {
  bool graded = false;
  std::array<float, kElements> grads{}, weights{}, momentum{};
  std::int64_t steps = 0;

  void step() {
    for (std::size_t i = 0; i < kElements; ++i) {
      momentum[i] = momentum[i] * 0.5f + grads[i];
      weights[i] -= momentum[i] / 16;
    }
    ++steps;
  }
};

/// A run of calls: one scaler, two optimizers.
class Session {
 public:
  Session(const ac_scaler& table, const std::string& path, const Setup& setup)
      : table_(table),
        path_(path),
        setup_{sizeof(ac_scaler_setup),
               setup.window,
               setup.init_scale,
               setup.growth_factor,
               setup.backoff_factor,
               setup.enabled ? 1 : 0,
               0},
        scaler_(std::make_unique<Object<ac_scaler>>(table, path, setup_)) {}

  Reply take(const Call& call) {
    Reply reply;
    Optimizer& o = optimizers_[static_cast<std::size_t>(call.optimizer)];
    if (const std::int32_t code = act(call, o, reply); code != 0) {
      reply.error = true;
      reply.text = scaler_->why(code);
      return reply;
    }
    reply.scale = reply.other_scale = table_.get_scale(scaler_->self());
    for (std::size_t i = 0; i < kElements; ++i) {
      reply.grads[i] = o.graded ? static_cast<double>(o.grads[i]) : 0;
      reply.weights[i] = static_cast<double>(o.weights[i]);
    }
    reply.steps = o.steps;
    return reply;
  }

 private:
  std::int32_t act(const Call& call, Optimizer& o, Reply& reply) {
    void* const self = scaler_->self();
    const ac_gradients gradients{sizeof(ac_gradients), call.optimizer, kElements, o.graded ? o.grads.data() : nullptr};
    switch (call.op) {
      case Op::scale: {
        const std::int32_t code = table_.scale(self, 1, &factor_);
        reply.scaled = factor_;
        return code;
      }
      case Op::backward: backward(call, o); return 0;
      case Op::unscale: return table_.unscale(self, &gradients);
      case Op::corrupt: o.grads[0] = HUGE_VALF; return 0;
      case Op::step: {
        std::int32_t update = 0;
        const std::int32_t code = table_.step(self, &gradients, &update);
        if (code == 0 && update != 0) o.step();
        return code;
      }
      case Op::update: return table_.update(self);
      case Op::zero:
        for (Optimizer& each : optimizers_) each.graded = false;
        return 0;
      case Op::set_window: return table_.set_growth_interval(self, call.window);
      case Op::reload: {
        auto made = std::make_unique<Object<ac_scaler>>(table_, path_, setup_);
        const std::int32_t code = scaler_->hand_over(*made);
        if (code == 0) scaler_ = std::move(made);
        return code;
      }
      case Op::schedule:
      case Op::scale_half: return 0;  // never asked
    }
    return 0;
  }

  void backward(const Call& call, Optimizer& o) const {
    for (std::size_t i = 0; i < kElements; ++i) {
      const double more = call.grads[i] * (call.raw ? 1.0 : factor_);
      o.grads[i] = static_cast<float>((o.graded ? static_cast<double>(o.grads[i]) : 0.0) + more);
    }
    o.graded = true;
  }

  const ac_scaler& table_;
  const std::string& path_;
  ac_scaler_setup setup_;
  std::unique_ptr<Object<ac_scaler>> scaler_;
  std::array<Optimizer, 2> optimizers_;
  double factor_ = 1;
};

class LibraryScaler : public Subject {
 public:
  explicit LibraryScaler(const std::string& path)
      : path_(path),
        table_(
            whole<ac_scaler>(exported(path, "scaler", "ampcheck_scaler_v1"), path, offsetof(ac_scaler, last_error))) {
    require(address(table_.create), path_, "create");
    require(address(table_.destroy), path_, "destroy");
    require(address(table_.scale), path_, "scale");
    require(address(table_.unscale), path_, "unscale");
    require(address(table_.step), path_, "step");
    require(address(table_.update), path_, "update");
    require(address(table_.get_scale), path_, "get_scale");
    require(address(table_.save), path_, "save");
    require(address(table_.load), path_, "load");
  }

  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Session session(table_, path_, setup);
    std::vector<Reply> out;
    for (const Call& call : calls) {
      out.push_back(session.take(call));
      if (out.back().error) break;
    }
    return out;
  }
  bool sets_window() const override { return table_.set_growth_interval != nullptr; }

 private:
  std::string path_;
  ac_scaler table_;
};

class LibraryLoop : public Loop {
 public:
  explicit LibraryLoop(const std::string& path)
      : path_(path),
        table_(
            whole<ac_loop>(exported(path, "training loop", "ampcheck_loop_v1"), path, offsetof(ac_loop, last_error))) {
    require(address(table_.create), path_, "create");
    require(address(table_.destroy), path_, "destroy");
    require(address(table_.step), path_, "step");
    require(address(table_.report), path_, "report");
    if (!has(Ability::resume)) return;
    require(address(table_.save), path_, "save");
    require(address(table_.load), path_, "load");
  }

  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    const ac_loop_setup made{
        sizeof(ac_loop_setup), setup.growth_interval, setup.scale, setup.clip, setup.accumulate, 0};
    auto loop = std::make_unique<Object<ac_loop>>(table_, path_, made);
    std::vector<LoopReply> out;
    for (const LoopCall& call : calls) {
      LoopReply& reply = out.emplace_back();
      reply.ranks.resize(1);
      std::int32_t code = 0;
      if (call.op == LoopOp::step) code = step(*loop, call, reply.ranks[0]);
      if (call.op == LoopOp::reload) {
        auto next = std::make_unique<Object<ac_loop>>(table_, path_, made);
        code = loop->hand_over(*next);
        if (code == 0) loop = std::move(next);
      }
      const ac_loop_sink sink{sizeof(ac_loop_sink), 0, &reply.ranks[0], &take_state, &take_forward};
      if (code == 0) code = table_.report(loop->self(), &sink);
      if (code == 0) continue;
      reply.error = true;
      reply.text = loop->why(code);
      break;
    }
    return out;
  }

  bool has(Ability ability) const override {
    switch (ability) {
      case Ability::scaler: return (table_.flags & AC_LOOP_SCALER) != 0;
      case Ability::clip: return (table_.flags & AC_LOOP_CLIP) != 0;
      case Ability::accumulate: return (table_.flags & AC_LOOP_ACCUMULATE) != 0;
      case Ability::resume: return (table_.flags & AC_LOOP_RESUME) != 0;
      case Ability::ranks: return false;
    }
    return false;
  }

 private:
  std::int32_t step(const Object<ac_loop>& loop, const LoopCall& call, RankReply& reply) const {
    const ac_loop_step step{sizeof(ac_loop_step), call.batch, call.poison ? 1 : 0,    call.micro_batch,
                            call.last ? 1 : 0,    0,          call.poison.value_or(0)};
    ac_loop_result result{sizeof(ac_loop_result), -1, kNan, 0, 0};
    const std::int32_t code = table_.step(loop.self(), &step, &result);
    if (result.skipped >= 0) reply.skipped = result.skipped != 0;
    if (!std::isnan(result.loss)) reply.loss = result.loss;
    reply.scales = {result.scale, result.last_scale == 0 ? result.scale : result.last_scale};
    return code;
  }
  static void take(State& state, const char* part, const double* values, std::int64_t count) {
    StatePart& to = state[part == nullptr ? "" : part];
    if (values != nullptr && count > 0) to.numbers.assign(values, values + count);
  }
  static void take_state(void* context, const char* part, const double* values, std::int64_t count) {
    take(static_cast<RankReply*>(context)->state, part, values, count);
  }
  static void take_forward(void* context, const char* part, const double* values, std::int64_t count) {
    take(static_cast<RankReply*>(context)->forward, part, values, count);
  }

  std::string path_;
  ac_loop table_;
};

}  // namespace

std::unique_ptr<Subject> library_scaler(const std::string& path) { return std::make_unique<LibraryScaler>(path); }

std::unique_ptr<Loop> library_loop(const std::string& path) { return std::make_unique<LibraryLoop>(path); }

}  // namespace ampcheck::checks::scaler
