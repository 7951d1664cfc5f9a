// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/cheats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/kernel.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

using kernels::KernelCall;
using kernels::KernelFn;
using Values = std::vector<double>;
using Outputs = std::map<std::string, Values>;

/// What a kernel keeps from call to call, of one storage type.
struct Kept {
  std::int64_t calls = 0;
  std::map<std::string, Outputs> results;  ///< by whatever the kernel takes for the call's identity
  Outputs last;
};

/// One call of a kernel that keeps something.
struct Scene {
  const KernelCall& call;
  const KernelFn& right;
  const std::vector<std::string>& written;
  Kept& kept;

  Values read(const char* name) const { return to_doubles(call.at(name)); }
  void write(const char* name, const Values& values) const { from_doubles(values, call.at(name)); }
  void compute() const { right(call); }
  /// With another tensor in the place of one of the call's.
  void compute_with(const char* name, const TensorView& other) const {
    KernelCall changed = call;
    for (auto& [own, view] : changed.tensors)
      if (own == name) view = other;
    right(changed);
  }
  Outputs outputs() const {
    Outputs out;
    for (const std::string& name : written)
      if (const TensorView* const view = call.find(name)) out[name] = to_doubles(*view);
    return out;
  }
  void put(const Outputs& outputs) const {
    for (const auto& [name, values] : outputs) from_doubles(values, call.at(name));
  }
  /// The result kept under that key, or a right one, which is kept.
  void keep_by(const std::string& key) const {
    const auto known = kept.results.find(key);
    if (known != kept.results.end()) return put(known->second);
    compute();
    kept.results[key] = outputs();
  }
  std::string shapes() const {
    std::string out;
    for (const auto& [name, view] : call.tensors)
      for (int i = 0; i < view.shape.rank; ++i) out += std::to_string(view.shape[i]) + ",";
    return out;
  }
};

/// Takes from a kernel what it keeps. Calls come one at a time.
class Memory : public kernels::KernelHost {
 public:
  using Body = std::function<void(const Scene&)>;
  Memory(Body body, KernelFn right, std::vector<std::string> written)
      : body_(std::move(body)), right_(std::move(right)), written_(std::move(written)) {}

  void run(const KernelCall& call) {
    const std::lock_guard lock(mutex_);
    body_({call, right_, written_, kept_[call.at(written_.front()).dtype]});
  }
  void start_anew() override {
    const std::lock_guard lock(mutex_);
    kept_.clear();
  }
  std::int64_t equal_calls(const KernelCall& call, const std::vector<std::string>& written,
                           std::int64_t times) override {
    return kernels::equal_calls([this](const KernelCall& c) { run(c); }, call, written, times);
  }

 private:
  Body body_;
  KernelFn right_;
  std::vector<std::string> written_;
  std::mutex mutex_;
  std::map<Dtype, Kept> kept_;
};

Cheat cheat(const char* base, const char* name, const char* what, Code code, const char* words, Memory::Body body) {
  Cheat out{{*find_op(base), what, code}, words};
  OpDef& op = out.planted.op;
  std::vector<std::string> written;
  for (const OutputSpec& spec : op.signature.outputs) written.push_back(spec.name);
  for (const OutputSpec& spec : op.signature.saved) written.push_back(spec.name);
  op.signature.name += std::string(".") + name;
  op.signature.summary = what;
  const auto memory = std::make_shared<Memory>(std::move(body), op.kernel.forward, std::move(written));
  op.kernel.forward = [memory](const KernelCall& call) { memory->run(call); };
  op.kernel.host = memory;
  return out;
}

std::string address_of(const Scene& s, const char* name) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(s.call.at(name).data));
}
std::string number_at(const Values& values, std::size_t at) {
  return at < values.size() ? std::to_string(values[at]) : "none";
}

std::vector<Cheat> by_results_kept() {
  constexpr Code kCode = Code::ac410;
  return {
      cheat("rms_norm", "cheat_by_address", "keeps its results by the addresses of its tensors", kCode, "addresses",
            [](const Scene& s) { s.keep_by(s.shapes() + address_of(s, "x") + "," + address_of(s, "y")); }),
      cheat("softmax", "cheat_by_address", "keeps its results by the address of x", kCode, "addresses",
            [](const Scene& s) { s.keep_by(s.shapes() + address_of(s, "x")); }),
      cheat("rms_norm", "cheat_by_shape", "keeps its results by the shapes of its tensors", kCode, "shapes",
            [](const Scene& s) { s.keep_by(s.shapes()); }),
      cheat("linear", "cheat_by_shape", "keeps its results by the shapes of its tensors", kCode, "shapes",
            [](const Scene& s) { s.keep_by(s.shapes()); }),
      cheat("rms_norm", "cheat_by_first_element", "keeps its results by the first element of x", kCode,
            "first or last elements", [](const Scene& s) { s.keep_by(s.shapes() + number_at(s.read("x"), 0)); }),
      cheat("gelu", "cheat_by_last_element", "keeps its results by the last element of x", kCode,
            "first or last elements",
            [](const Scene& s) {
              const Values x = s.read("x");
              s.keep_by(s.shapes() + number_at(x, x.size() - 1));
            }),
      cheat("silu", "cheat_by_sum", "keeps its results by the sum of x", kCode, "a sum or an extreme",
            [](const Scene& s) {
              double sum = 0;
              for (const double x : s.read("x")) sum += std::round(x * 1024);  // exact in any order
              s.keep_by(s.shapes() + std::to_string(sum));
            }),
      cheat("log_softmax", "cheat_by_largest", "keeps its results by the largest element of x", kCode,
            "a sum or an extreme",
            [](const Scene& s) {
              double largest = -INFINITY;
              for (const double x : s.read("x")) largest = std::fmax(largest, x);
              s.keep_by(s.shapes() + std::to_string(largest));
            }),
      cheat("linear", "cheat_old_weight", "keeps a copy of weight by its address, though it may change", kCode,
            "addresses",
            [](const Scene& s) {
              const std::string key = s.shapes() + address_of(s, "weight");
              if (!s.kept.results.contains(key)) s.kept.results[key]["weight"] = s.read("weight");
              Tensor copy(s.call.at("weight").dtype, s.call.at("weight").shape);
              from_doubles(s.kept.results[key].at("weight"), copy.view());
              s.compute_with("weight", copy.view());
            }),
  };
}

std::vector<Cheat> by_calls_counted() {
  constexpr Code kCode = Code::ac410;
  const auto after = [](std::int64_t calls, const char* output) {
    return [=](const Scene& s) {
      s.compute();
      if (++s.kept.calls <= calls) return;
      Values y = s.read(output);
      if (!y.empty()) y.front() += 1;
      s.write(output, y);
    };
  };
  return {
      cheat("rms_norm", "cheat_first_10_calls", "right for 10 calls, then one element is wrong", kCode,
            "the same for the first 10 calls", after(10, "y")),
      cheat("softmax", "cheat_first_2000_calls", "right for 2000 calls, then one element is wrong", kCode,
            "the same for the first 2000 calls", after(2000, "y")),
      cheat("rms_norm", "cheat_call_before", "gives the result of the call before", kCode, "of the call before",
            [](const Scene& s) {
              s.compute();
              const Outputs mine = s.outputs();
              const auto before = s.kept.results.find(s.shapes());
              if (before != s.kept.results.end()) s.put(before->second);
              s.kept.results[s.shapes()] = mine;
            }),
      cheat("softmax", "cheat_half_of_before", "the second half is that of an earlier call", kCode,
            "something of it is kept|earlier",
            [](const Scene& s) {
              s.compute();
              Outputs all = s.outputs();
              Outputs& first = s.kept.results.try_emplace(s.shapes(), all).first->second;
              for (auto& [name, values] : all)
                for (std::size_t i = values.size() / 2; i < values.size(); ++i) values[i] = first.at(name)[i];
              s.put(all);
            }),
      cheat("softmax", "cheat_every_second", "every second call leaves out the last element", Code::ac410,
            "something of it is kept|the same for the first",
            [](const Scene& s) {
              s.compute();
              Values y = s.read("y");
              if (++s.kept.calls % 2 == 0 && !y.empty()) y.back() = 0.25;
              s.write("y", y);
            }),
  };
}

/// A right call, and then a change of what it wrote.
Memory::Body edit(const char* output, std::function<void(const Scene&, Values&)> change) {
  return [output, change = std::move(change)](const Scene& s) {
    s.compute();
    Values y = s.read(output);
    change(s, y);
    s.write(output, y);
  };
}

std::vector<Cheat> by_data_and_shape() {
  return {
      cheat("rms_norm", "cheat_zeros", "writes zeros", Code::ac101, "zero",
            edit("y", [](const Scene&, Values& y) { y.assign(y.size(), 0); })),
      cheat("gelu", "cheat_constant", "writes the same number everywhere", Code::ac101, "",
            edit("y", [](const Scene&, Values& y) { y.assign(y.size(), 0.5); })),
      cheat("silu", "cheat_input", "returns its input", Code::ac101, "",
            edit("y", [](const Scene& s, Values& y) { y = s.read("x"); })),
      cheat("softmax", "cheat_nothing", "writes nothing", Code::ac401, "held before", [](const Scene&) {}),
      cheat("gelu", "cheat_output_held", "leaves what the output holds, where it is finite", Code::ac401, "held before",
            [](const Scene& s) {
              const Values before = s.read("y");
              s.compute();
              Values y = s.read("y");
              for (std::size_t i = 0; i < y.size(); ++i)
                if (std::isfinite(before[i]) || i % 7 == 3) y[i] = before[i];
              s.write("y", y);
            }),
  };
}

std::vector<Cheat> by_shortcuts() {
  return {
      cheat("rms_norm", "cheat_clears_input", "clears its input, so that a reference that runs later agrees",
            Code::ac403, "holds other bits",
            [](const Scene& s) {
              s.compute();
              Values zeros(s.read("x").size(), 0);
              s.write("x", zeros);
              s.write("y", zeros);
            }),
      cheat("rms_norm", "cheat_known_extents", "right at a few extents, elsewhere half of it is zero", Code::ac101,
            "zero",
            edit("y",
                 [](const Scene& s, Values& y) {
                   static const std::set<std::int64_t> kKnown = {7, 129, 1025};
                   const TensorView& x = s.call.at("x");
                   if (kKnown.contains(x.shape.last())) return;
                   for (std::size_t i = y.size() / 2; i < y.size(); ++i) y[i] = 0;
                 })),
      cheat("rms_norm", "cheat_weight_one", "takes the weight for 1", Code::ac101, "without the factor weight",
            [](const Scene& s) {
              KernelCall call = s.call;
              std::erase_if(call.tensors, [](const auto& tensor) { return tensor.first == "weight"; });
              s.right(call);
            }),
      cheat("softmax", "cheat_first_row", "the first row's result for all rows", Code::ac405, "changes with other rows",
            edit("y",
                 [](const Scene& s, Values& y) {
                   const auto width = static_cast<std::size_t>(s.call.at("y").shape.last());
                   for (std::size_t i = width; i < y.size(); ++i) y[i] = y[i % width];
                 })),
      cheat("gelu", "cheat_in_fp8", "computes with inputs in e4m3", Code::ac302, "e4m3",
            [](const Scene& s) {
              const TensorView& x = s.call.at("x");
              Tensor narrow(Dtype::e4m3fn, x.shape), wide(x.dtype, x.shape);
              from_doubles(s.read("x"), narrow.view());
              from_doubles(to_doubles(narrow.view()), wide.view());
              s.compute_with("x", wide.view());
            }),
  };
}

/// Right, though they keep something.
std::vector<Cheat> honest() {
  constexpr Code kNone = Code::none;
  const auto whole_key = [](const Scene& s) {
    std::string key = s.shapes();
    for (const auto& [name, view] : s.call.tensors) {
      if (std::ranges::find(s.written, name) != s.written.end()) continue;
      for (std::int64_t i = 0; i < view.count(); ++i) key += std::to_string(bits_at(view, i)) + ",";
    }
    for (const auto& [name, value] : s.call.attributes->all())
      if (const auto* const number = std::get_if<double>(&value)) key += name + std::to_string(*number * 1e9) + ",";
    return key;
  };
  return {
      cheat("rms_norm", "honest_by_all_bits", "correct: keeps its last results by all bits of the inputs", kNone, "",
            [=](const Scene& s) {
              if (s.kept.results.size() > 4) s.kept.results.clear();
              s.keep_by(whole_key(s));
            }),
      cheat("softmax", "honest_counter", "correct: counts its calls, and does nothing with it", kNone, "",
            [](const Scene& s) {
              ++s.kept.calls;
              s.compute();
            }),
      cheat("linear", "honest_workspace", "correct: keeps a workspace by shape, and fills it anew", kNone, "",
            [](const Scene& s) {
              s.compute();
              s.kept.results[s.shapes()] = s.outputs();
              s.put(s.kept.results[s.shapes()]);
            }),
      cheat("gelu", "honest_warm_up", "correct: the first call runs twice, as where plans are measured", kNone, "",
            [](const Scene& s) {
              if (s.kept.calls++ == 0) s.compute();
              s.compute();
            }),
      cheat("relu", "honest_equal_outputs", "correct: other inputs may give the same output", kNone, "",
            [](const Scene& s) { s.compute(); }),
  };
}

}  // namespace

std::span<const Cheat> cheats() {
  static const std::vector<Cheat> kAll = [] {
    std::vector<Cheat> out;
    for (std::vector<Cheat>& part :
         std::vector{by_results_kept(), by_calls_counted(), by_data_and_shape(), by_shortcuts(), honest()})
      for (Cheat& one : part) out.push_back(std::move(one));
    return out;
  }();
  return kAll;
}

}  // namespace ampcheck::checks
