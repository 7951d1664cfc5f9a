// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the bytes of a file; or changes of the tensors of a right one, each of seven bytes (what, which tensor,
// with what). Of the runs that go on from what was taken one of 64 makes a step.
#include "checks/train/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "checks/models/tape.h"
#include "checks/train/trainer.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/parallel.h"
#include "src/safetensors.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;
using namespace ampcheck::checks;

namespace {

/// Numbers from -1 to 1.
std::vector<double> numbers(std::int64_t batch, std::size_t count) {
  std::vector<double> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = std::sin(static_cast<double>(batch) + 2.5 * static_cast<double>(i));
  return out;
}

train::TrainOptions options() {
  train::Net net;
  net.name = "small";
  net.forward = [](models::Tape& tape, std::int64_t batch) {
    const models::Var x = tape.data({2, 4}, numbers(batch, 8)), y = tape.data({2, 2}, numbers(batch + 9, 4));
    const models::Var w = tape.weight("w", {2, 4}, 4);
    tape.add_loss(tape.call("mse_loss", {{"x", tape.call("linear", {{"x", x}, {"weight", w}})}, {"target", y}}), 1);
  };
  train::TrainOptions out;
  out.own_net = std::move(net);
  out.rule.optimizer.name = "adam";
  out.shadows.carried = true;
  out.spread_seeds = 2;
  return out;
}

const std::vector<NamedTensor>& right_one() {
  static const std::vector<NamedTensor> kTensors = [] {
    train::Trainer trainer(options());
    for (int step = 0; step < 2; ++step) trainer.step();
    return parse_safetensors(train::checkpoint_bytes(trainer), "right");
  }();
  return kTensors;
}

/// Memory of its own: a copy of a Tensor shares it.
Tensor copy(const Tensor& from) {
  Tensor out = Tensor::uninitialized(from.dtype(), from.shape());
  std::memcpy(out.data(), from.data(), static_cast<std::size_t>(from.count() * bytes(from.dtype())));
  return out;
}

/// A trainer that nothing was taken into. To make one takes ten times as long as to read a file, so what was taken is
/// put back, and the same trainer reads the next one.
class FreshTrainer {
 public:
  train::Trainer& get() {
    if (trainer_) return *trainer_;
    trainer_ = std::make_unique<train::Trainer>(options());
    trainer_->prepare();
    for (const auto& run : trainer_->reference()) run->prepare();
    start_.clear();
    each([&](const Parameter& parameter, OptimizerState& state) {
      start_.push_back({copy(parameter.value), state});
      for (auto& [key, tensor] : start_.back().state) tensor = copy(tensor);
    });
    scaler_ = trainer_->scaler().state_dict();
    return *trainer_;
  }
  /// After a step no less than another one is fresh.
  void drop() { trainer_.reset(); }
  /// All that a checkpoint changes.
  void put_back() {
    auto of = start_.begin();
    each([&](const Parameter& parameter, OptimizerState& state) {
      std::memcpy(parameter.value.data(), of->value.data(),
                  static_cast<std::size_t>(of->value.count() * bytes(of->value.dtype())));
      state = of->state;
      for (auto& [key, tensor] : state) tensor = copy(tensor);
      ++of;
    });
    trainer_->scaler().load_state_dict(scaler_);
    for (const auto& run : trainer_->reference()) run->resume_at(0);
    trainer_->resume_at(0, 0, std::vector<int>(trainer_->optimizers().size(), 0), {}, {}, {}, {});
  }

 private:
  struct Start {
    Tensor value;
    OptimizerState state;
  };
  template <class F>
  void each(F take) {
    const auto of = [&](train::ParameterSet& parameters, train::OptimizerSet& optimizers) {
      std::size_t index = 0;
      for (const Parameter& parameter : parameters.all()) take(parameter, optimizers.state(index++));
    };
    of(trainer_->parameters(), trainer_->optimizers());
    for (const auto& run : trainer_->reference()) of(run->parameters(), *run->optimizers());
  }

  std::unique_ptr<train::Trainer> trainer_;
  std::vector<Start> start_;
  GradScaler::StateDict scaler_;
};

/// Of every 64 inputs one, the same ones each time: a step takes a hundred times as long as to read the file.
bool makes_a_step(std::string_view bytes) { return crc32(bytes) % 64 == 0; }

/// One change of one tensor.
void change(std::vector<NamedTensor>& tensors, fuzz::Bytes& bytes) {
  const auto what = bytes.take<std::uint8_t>(), which = bytes.take<std::uint8_t>();
  const auto with = bytes.take<std::uint8_t>();
  const auto value = bytes.take<float>();
  if (tensors.empty()) return;
  NamedTensor& chosen = tensors[which % tensors.size()];
  constexpr Dtype kDtypes[] = {Dtype::fp64, Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::i64, Dtype::u8};
  switch (what % 5) {
    case 0: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(which % tensors.size())); break;
    case 1: chosen.tensor = Tensor(kDtypes[with % std::size(kDtypes)], chosen.tensor.shape()); break;
    case 2: chosen.tensor = Tensor(chosen.tensor.dtype(), {with % 9}); break;
    case 3: chosen.name = chosen.name.substr(0, with % (chosen.name.size() + 1)) + "x"; break;
    default:
      if (chosen.tensor.dtype() == Dtype::fp64 && chosen.tensor.count() > 0) {
        chosen.tensor = copy(chosen.tensor);
        chosen.tensor.span<double>()[static_cast<std::size_t>(with) % static_cast<std::size_t>(chosen.tensor.count())] =
            static_cast<double>(value);
      }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static FreshTrainer fresh;
  set_threads(1);
  train::Trainer& trainer = fresh.get();
  bool stepped = false;
  try {
    if (size < 8 || data[7] != 0) {
      std::vector<NamedTensor> tensors = right_one();
      fuzz::Bytes bytes(data, std::min<std::size_t>(size, 7 * 16));
      while (!bytes.empty()) change(tensors, bytes);
      train::resume(trainer, std::move(tensors), "fuzz");
    } else {
      train::resume(trainer, fuzz::text_of(data, size), "fuzz");
    }
    fuzz::require(trainer.steps() >= 0, "a run that goes on knows its step");
    stepped = makes_a_step(fuzz::text_of(data, size));
    if (stepped) trainer.step();
  } catch (const Error&) {
  }
  if (stepped)
    fresh.drop();
  else
    fresh.put_back();
  return 0;
}
