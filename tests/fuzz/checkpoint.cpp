// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the bytes of a file; or changes of the tensors of a right one, each of seven bytes (what, which tensor,
// with what), after which the file is written anew. A run that goes on from what was taken makes a step.
#include "checks/train/checkpoint.h"

#include <algorithm>
#include <cmath>

#include "checks/models/tape.h"
#include "checks/train/trainer.h"
#include "src/error.h"
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

const std::string& right_one() {
  static const std::string kBytes = [] {
    train::Trainer trainer(options());
    for (int step = 0; step < 2; ++step) trainer.step();
    return train::checkpoint_bytes(trainer);
  }();
  return kBytes;
}

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
      if (chosen.tensor.dtype() == Dtype::fp64 && chosen.tensor.count() > 0)
        chosen.tensor.span<double>()[static_cast<std::size_t>(with) % static_cast<std::size_t>(chosen.tensor.count())] =
            static_cast<double>(value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    std::string file(fuzz::text_of(data, size));
    if (size < 8 || data[7] != 0) {
      std::vector<NamedTensor> tensors = parse_safetensors(right_one(), "right");
      fuzz::Bytes bytes(data, std::min<std::size_t>(size, 7 * 16));
      while (!bytes.empty()) change(tensors, bytes);
      file = safetensors_bytes(tensors);
    }
    train::Trainer trainer(options());
    train::resume(trainer, file, "fuzz");
    fuzz::require(trainer.steps() >= 0, "a run that goes on knows its step");
    trainer.step();
  } catch (const Error&) {
  }
  return 0;
}
