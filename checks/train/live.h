// SPDX-License-Identifier: Apache-2.0
// The ops of a training run, judged at the tensors that they really met, as `ampcheck check` judges an op: every
// element against the interval of the op's formula and contract.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/train/fp8.h"
#include "checks/train/judge_mode.h"
#include "src/finding.h"
#include "src/op_call.h"
#include "src/tensor_file.h"

namespace ampcheck::checks::train {

/// One call after its backward, or after its forward if no backward will run. Views are valid during the call alone.
struct LiveCall {
  int step = 0, rank = 0;
  std::string_view name, layer;  ///< "linear_1", "layer0"
  const OpDef& op;
  const OpCall& call;
  /// Inputs, outputs and what was saved; with a backward the cotangent and the gradients too.
  std::vector<std::pair<std::string, TensorView>> tensors;
  /// With a local shadow: what was written, and the formula's values.
  struct Shadowed {
    TensorView got, exact;
  };
  std::vector<Shadowed> shadowed;
};

/// A cast of a tensor to another dtype, of values on their way forward or of a gradient on its way back.
struct LiveCast {
  int step = 0, rank = 0;
  bool backward = false;
  std::string_view op, layer, tensor;  ///< the op that asked for it, and what is cast
  TensorView from, got;
};

/// A tensor on its way to a product in fp8.
struct LiveFp8 {
  int step = 0, rank = 0;
  bool gradient = false;
  std::string_view op, layer, tensor;
  TensorView from, codes;
  float scale = 1;
  TensorView wide;  ///< what the product reads
};

class Fp8Check;

/// Whom a graph tells of its calls.
class CallObserver {
 public:
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;
  virtual ~CallObserver() = default;
  virtual void see_call(const LiveCall& call) = 0;
  virtual void see_cast(const LiveCast&) {}
  virtual void see_fp8(const LiveFp8&) {}
};

/// A cast that is not what rounding to nearest gives.
struct CastFinding {
  int step = 0;
  std::string where;  ///< "linear_1 (layer0) backward cast of dweight to fp32"
  std::int64_t outside = 0, elements = 0;
  double got = 0, want = 0;  ///< of the first
};

/// A call that was found wrong.
struct LiveFinding {
  int step = 0, rank = 0;
  std::string call, layer;
  CaseResult result;
  TensorFile tensors;  ///< of the call: what `ampcheck check --dump` reads
};

class LiveJudge final : public CallObserver {
 public:
  /// `fp8`: the recipe that the run should follow, if any.
  explicit LiveJudge(JudgeMode mode, const std::optional<Fp8Recipe>& fp8 = {});
  ~LiveJudge() override;
  /// The next micro-batch: of how many the step has, over all ranks.
  void begin(int step, int batch, int batches);
  void see_call(const LiveCall& call) override;
  void see_cast(const LiveCast& cast) override;
  void see_fp8(const LiveFp8& cast) override;
  /// Hears of each call before it is judged.
  void listen(std::function<void(const LiveCall&)> listener) { listener_ = std::move(listener); }

  /// Null without a recipe.
  Fp8Check* fp8() { return fp8_.get(); }
  const Fp8Check* fp8() const { return fp8_.get(); }
  /// One for each call by name, in the order in which they were found.
  const std::vector<LiveFinding>& findings() const { return findings_; }
  /// The first casts that are wrong, one of each name.
  const std::vector<CastFinding>& casts() const { return casts_; }
  std::int64_t judged() const { return judged_; }
  /// Calls that were not judged, with the reason: no more than a few.
  const std::vector<std::string>& left_out() const { return left_out_; }
  /// Whether this call was convicted.
  bool convicted(std::string_view call) const;

  /// A call with more products of extents than this is judged by `all` alone.
  static constexpr double kMostWork = 0x1p25;

 private:
  /// Relative errors of one call against the local shadow: of the 2-norm, and of the worst element beside the largest.
  struct Errors {
    double norm = 0, worst = 0;
  };
  static Errors errors_of(const LiveCall& call);
  bool wants(const LiveCall& call, const Errors& errors) const;
  void judge(const LiveCall& call);
  void leave_out(std::string what);

  JudgeMode mode_;
  std::unique_ptr<Fp8Check> fp8_;
  bool sampled_now_ = false;
  std::map<std::string, Errors, std::less<>> judged_errors_;  ///< by call: the largest that were judged
  std::vector<LiveFinding> findings_;
  std::vector<CastFinding> casts_;
  std::function<void(const LiveCall&)> listener_;
  std::vector<std::string> left_out_;
  std::int64_t judged_ = 0;
};

}  // namespace ampcheck::checks::train
