// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/net_pass.h"

#include <algorithm>
#include <cmath>

#include "checks/diagnose/observation.h"
#include "checks/models/bound_call.h"
#include "src/amp/autocast.h"
#include "src/float_format.h"

namespace ampcheck::checks::autocast {

namespace {

/// Notes what each call is handed, and whether autocast is on there.
class NotingTape final : public models::ForwardingTape {
 public:
  NotingTape(models::Tape& inner, const ManualTape::Classes& classes, std::vector<OpRow>& rows)
      : ForwardingTape(inner), classes_(classes), rows_(rows) {}

  /// Bytes of the casts that the cache has to keep at most: of every weight one for each dtype of a region.
  std::int64_t due_held() const {
    std::int64_t out = 0;
    for (const auto& [cast, size] : casts_) out += size;
    return out;
  }

  models::Var parameter(const std::string& name, const Shape& shape, double offset, double scale) override {
    const models::Var out = inner_.parameter(name, shape, offset, scale);
    weights_[out.id] = name;
    return out;
  }

  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    const OpSignature& signature = models::op_of_call(op).signature;
    const AutocastState state = autocast_state(device());
    OpRow row;
    row.op = op;
    row.call = op + "_" + std::to_string(++counts_[op]);
    row.policy = classes_(signature);
    row.enabled = state.enabled;
    std::vector<Dtype> looked_at;
    std::vector<models::Var> vars;
    for (const auto& [name, var] : inputs) {
      const TensorSpec* const spec = signature.input(name);
      if (spec == nullptr || !is_float(dtype_of(spec->type, Dtype::fp32))) continue;
      row.handed.push_back(dtype(var));
      if (spec->type != TypeRule::storage) continue;
      looked_at.push_back(dtype(var));
      vars.push_back(var);
    }
    const Decision decision = decide(row.policy, state.enabled, state.dtype, looked_at);
    if (state.enabled && state.cache_enabled) note_casts(vars, decision, state.dtype);
    row.due_computes = decision.computes();
    row.due_gives = dtype_of(signature.outputs.front().type, *row.due_computes);
    const std::size_t at = rows_.size();
    rows_.push_back(std::move(row));
    const models::Var out = inner_.call(op, inputs, attributes);
    rows_[at].gives = dtype(out);
    return out;
  }

 private:
  void note_casts(const std::vector<models::Var>& vars, const Decision& decision, Dtype region) {
    for (std::size_t i = 0; i < vars.size() && i < decision.inputs.size(); ++i) {
      const auto weight = weights_.find(vars[i].id);
      if (weight != weights_.end() && decision.inputs[i] == region && dtype(vars[i]) != region)
        casts_[{weight->second, region}] = shape(vars[i]).count() * bytes(region);
    }
  }

  const ManualTape::Classes& classes_;
  std::vector<OpRow>& rows_;
  std::map<std::string, int> counts_;
  std::map<int, std::string> weights_;
  std::map<std::pair<std::string, Dtype>, std::int64_t> casts_;  ///< a weight in a dtype: its bytes
};

/// One op under custom_fwd.
class CustomTape final : public models::ForwardingTape {
 public:
  CustomTape(models::Tape& inner, const PassOptions& options) : ForwardingTape(inner), options_(options) {}

  models::Var call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                   const std::vector<std::pair<std::string, double>>& attributes = {}) override {
    if (op != options_.custom || !autocast_state(device()).enabled) return inner_.call(op, inputs, attributes);
    const CustomForward region(device(), options_.cast_inputs);
    std::vector<std::pair<std::string, models::Var>> cast;
    for (const auto& [name, var] : inputs) cast.emplace_back(name, inner_.to(var, region.input_dtype(dtype(var))));
    return inner_.call(op, cast, attributes);
  }

 private:
  const PassOptions& options_;
};

std::int64_t bytes_of(const TensorView& view) { return view.count() * bytes(view.dtype); }

/// Fills the rows with what the graph tells of its calls.
class Filler final : public train::Observer, public train::CallObserver {
 public:
  Filler(std::vector<OpRow>& rows, models::Recordings& recordings, Dtype run)
      : rows_(rows), recordings_(recordings), run_(run) {}

  void set_judge(train::LiveJudge* judge) { judge_ = judge; }
  void look() { looks_ = true; }
  std::int64_t bytes() const { return bytes_; }

  bool wants(std::string_view) const override { return looks_; }
  bool wants_exact(std::string_view) const override { return looks_; }
  train::Seen see(const train::Event& e) override {
    train::Seen out{.all_finite = train::all_finite(e.got)};
    OpRow* const row = find(e.op);
    if (row == nullptr || !e.has_exact()) return out;
    if (e.cast)
      e.phase == train::Phase::forward ? note_cast(e, *row) : note_gradient(e, *row);
    else if (e.phase == train::Phase::forward)
      note_result(e, *row);
    return out;
  }

  void see_call(const train::LiveCall& call) override {
    if (judge_ != nullptr) judge_->see_call(call);
    OpRow* const row = find(call.name);
    std::int64_t moved = 0;
    for (const auto& [name, view] : call.tensors) moved += bytes_of(view);
    bytes_ += moved;
    if (row == nullptr) return;
    row->bytes += moved;
    row->layer = std::string(call.layer);
    row->computes = call.call.storage;
    if (row->policy == CastPolicy::unlisted || row->policy == CastPolicy::promote) row->hazard = hazard_of(call);
  }
  void see_cast(const train::LiveCast& cast) override {
    if (judge_ != nullptr) judge_->see_cast(cast);
    const std::int64_t moved = bytes_of(cast.from) + bytes_of(cast.got);
    bytes_ += moved;
    if (OpRow* const row = find(cast.op)) row->bytes += moved;
  }

 private:
  OpRow* find(std::string_view call) {
    const auto found = std::ranges::find(rows_, call, [](const OpRow& row) { return std::string_view(row.call); });
    return found == rows_.end() ? nullptr : &*found;
  }

  void note_cast(const train::Event& e, OpRow& row) const {
    const std::vector<double> got = to_doubles(e.got), exact = to_doubles(e.exact);
    row.cast_elements += std::ssize(got);
    for (std::size_t i = 0; i < got.size(); ++i)
      row.cast_overflowed += std::isfinite(exact[i]) && !std::isfinite(got[i]);
  }

  void note_gradient(const train::Event& e, OpRow& row) const {
    const std::vector<double> got = to_doubles(e.got), exact = to_doubles(e.exact);
    for (std::size_t i = 0; i < got.size(); ++i) {
      row.grad_elements += exact[i] != 0;
      row.grad_flushed += got[i] == 0 && exact[i] != 0;
      row.grad_overflowed += std::isfinite(exact[i]) && !std::isfinite(got[i]);
    }
  }

  void note_result(const train::Event& e, OpRow& row) const {
    const std::vector<double> got = to_doubles(e.got), exact = to_doubles(e.exact);
    double error2 = 0, exact2 = 0, most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!std::isfinite(exact[i])) continue;
      most = std::max(most, std::fabs(exact[i]));
      if (!std::isfinite(got[i])) {
        ++row.overflowed;
        continue;
      }
      error2 += (got[i] - exact[i]) * (got[i] - exact[i]);
      exact2 += exact[i] * exact[i];
    }
    const double limit = diagnose::error_limit(e.got.dtype, run_, std::sqrt(exact2), std::ssize(got));
    row.excess = limit > 0 ? std::sqrt(error2) / limit : 0;
    row.error = exact2 > 0 ? std::sqrt(error2 / exact2) : 0;
    if (most > 0) row.headroom = std::log2(format(e.got.dtype).max_finite() / most);
  }

  std::string hazard_of(const train::LiveCall& call) {
    const auto integers = [&](const std::string& name) {
      for (const auto& [key, view] : call.tensors)
        if (key == name) return to_doubles(view);
      return std::vector<double>();
    };
    return call.op.forms.empty() ? "" : hazards(*recordings_.of(call.op, call.call, integers));
  }

  std::vector<OpRow>& rows_;
  models::Recordings& recordings_;
  Dtype run_;
  train::LiveJudge* judge_ = nullptr;
  bool looks_ = false;
  std::int64_t bytes_ = 0;
};

/// The ops whose class the list has otherwise than the program's own, which the graph follows: these are cast by hand.
std::set<std::string> ops_by_hand(const NetSubject& subject, const ManualTape::Classes& classes) {
  std::set<std::string> out;
  for (const OpDef& op : all_ops())
    if (classes(op.signature) != cast_policy(subject.device, op.signature)) out.insert(op.signature.name);
  return out;
}

}  // namespace

struct Pass::State {
  State(PassOptions given, train::ParameterSet& parameter_set, models::Recordings& recordings)
      : options(std::move(given)),
        parameters(parameter_set),
        filler(rows, recordings, options.subject.dtype),
        graph(parameters, recordings,
              {.observer = &filler,
               .fault = options.by_hand ? nullptr : options.subject.fault,
               .calls = &filler,
               .kernels_of = &options.subject.kernels_of,
               .autocast = options.subject.device}) {}

  PassOptions options;
  train::ParameterSet& parameters;
  std::vector<OpRow> rows;
  Filler filler;
  train::Graph graph;
  std::int64_t held = 0, due_held = 0, left = 0;
};

Pass::Pass(PassOptions options, train::ParameterSet& parameters, models::Recordings& recordings)
    : state_(std::make_unique<State>(std::move(options), parameters, recordings)) {}
Pass::~Pass() = default;

void Pass::look(train::LiveJudge* judge) {
  state_->filler.look();
  state_->filler.set_judge(judge);
  if (judge != nullptr) judge->begin(0, 0, 1);
}

void Pass::run(std::int64_t batch) {
  State& s = *state_;
  const NetSubject& subject = s.options.subject;
  s.parameters.clear_grads();
  {
    const Autocast region(subject.device, autocast_in(subject.dtype));
    models::Tape* tape = &s.graph;
    std::vector<std::unique_ptr<models::Tape>> between;
    const auto put = [&](std::unique_ptr<models::Tape> next) {
      tape = next.get();
      between.push_back(std::move(next));
    };
    std::set<std::string> by_hand =
        s.options.by_hand ? std::set<std::string>() : ops_by_hand(subject, s.options.classes);
    by_hand.insert(s.options.raised.begin(), s.options.raised.end());
    const auto classes = [&, raised = s.options.raised](const OpSignature& op) {
      return raised.contains(op.name) ? CastPolicy::fp32 : s.options.classes(op);
    };
    if (!s.options.custom.empty()) put(std::make_unique<CustomTape>(*tape, s.options));
    if (subject.between && !s.options.by_hand) put(subject.between(*tape));
    if (s.options.by_hand || !by_hand.empty()) put(std::make_unique<ManualTape>(*tape, classes, by_hand));
    NotingTape noting(*tape, s.options.classes, s.rows);
    subject.net.forward(noting, batch);
    s.held = cached_cast_bytes();
    s.due_held = noting.due_held();
  }
  s.left = cached_cast_bytes();
  s.graph.backward(static_cast<float>(s.options.scale), s.options.scale);
}

bool Pass::loss_finite() const { return std::isfinite(state_->graph.loss()); }

bool Pass::gradients_finite() const {
  return std::ranges::all_of(state_->graph.parameter_gradients(),
                             [](const auto& g) { return train::all_finite(g.second.view()); });
}

std::map<std::string, std::vector<double>> Pass::gradients() const {
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, tensor] : state_->graph.parameter_gradients()) {
    std::vector<double> values = to_doubles(tensor.view());
    for (double& value : values) value /= state_->options.scale;
    out[name] = std::move(values);
  }
  return out;
}

TensorView Pass::output(const std::string& call) const { return state_->graph.view(state_->graph.output_of(call)); }
const std::vector<OpRow>& Pass::rows() const { return state_->rows; }
std::int64_t Pass::bytes() const { return state_->filler.bytes(); }
std::int64_t Pass::held() const { return state_->held; }
std::int64_t Pass::due_held() const { return state_->due_held; }
std::int64_t Pass::left() const { return state_->left; }

}  // namespace ampcheck::checks::autocast
