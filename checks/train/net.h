// SPDX-License-Identifier: Apache-2.0
// The nets that `ampcheck train` trains, with their data: one forward pass on a batch, on any tape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checks/define/op_def.h"
#include "checks/models/real_data.h"
#include "checks/models/tape.h"
#include "checks/train/losses.h"

namespace ampcheck::checks::train {

struct NetOptions {
  std::string model = "mlp";
  std::string loss = {};       ///< mlp, and a net of digits: as read_losses() reads it; empty: the model's own
  std::int64_t batch = 0;      ///< rows, images or passages; 0: the model's own
  std::int64_t width = 0;      ///< tutorial: of its layers; 0: 4096 as in the tutorial
  std::uint64_t seed = 1;      ///< of generated data
  std::filesystem::path data;  ///< folder of digits and text
};

struct NetInfo {
  std::string_view name, data, summary;
};

struct Net {
  std::string name;
  double rate = 0.1;  ///< learning rate that it is trained with unless another is asked for
  double momentum = 0;
  /// Forward and loss on batch 0, 1, 2, ...
  std::function<void(models::Tape& tape, std::int64_t batch)> forward;
  std::string settings = {};  ///< "loss mse batch 64": what it was made with, which checkpoints of it have in common
  std::string layers = {};    ///< of a user's own net: the same
  std::vector<const OpDef*> own_ops = {};  ///< of libraries
  std::vector<std::string> losses = {};    ///< as they were asked for, where they are several
};

inline constexpr std::int64_t kDigitClasses = 10;
/// Images batch * size, ... of the file, which begins anew at its end.
models::Digits digits_batch(const models::Digits& all, std::int64_t batch, std::int64_t size);
/// Adds the loss of logits [rows, columns] against classes from 0 to columns - 1: mean of the cross-entropies, or MSE
/// against one-hot rows.
void add_class_loss(models::Tape& tape, models::Var logits, const std::vector<double>& classes, const LossChoice& loss);

std::span<const NetInfo> nets();
/// Error for an unknown model or loss; EnvironmentError if its data is not there.
Net make_net(const NetOptions& options);

}  // namespace ampcheck::checks::train
