// SPDX-License-Identifier: Apache-2.0
// Small nets for planted runs, on generated data, and built-in ops whose kernel is changed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/diagnose/subject.h"
#include "checks/models/layers.h"

namespace ampcheck::checks::diagnose {

using models::Tape;
using models::Var;

inline constexpr std::int64_t kRows = 32, kColumns = 32, kClasses = 8;

/// Normal numbers [rows, columns], the same for each batch and stream at each call.
std::vector<double> normals(const std::string& stream, std::int64_t batch, std::int64_t count);
/// Rows and the classes that a fixed teacher gives them.
struct Batch {
  std::vector<double> x, classes;
};
Batch batch_of(std::int64_t batch, double gain = 1);

/// What stands between the first and the last layer.
using Middle = std::function<Var(Tape&, Var)>;
/// linear "in" to 64, `middle`, linear "out" to the classes, cross-entropy. `gain`: of the data of a batch.
train::Net class_net(const Middle& middle, const std::function<double(std::int64_t)>& gain = nullptr);
/// A subject with torch's scaler for fp16, and sgd.
Subject subject_of(train::Net net, Dtype dtype, int steps = 40);

/// The built-in op under another name, with kernels made from its own. Made once: `name` tells it.
using Make = std::function<kernels::Kernel(const kernels::Kernel& right)>;
void use_planted(const std::string& base, const std::string& name, const Make& make);

/// An op of a formula of its own, that nets may call from then on. Made once: its name tells it.
void use_new(OpDef op);

/// The kernel in fp32, whose results are cut off instead of rounded.
kernels::Kernel truncating(const kernels::Kernel& right);

/// One element of a tensor.
void set_element(const TensorView& view, std::int64_t at, double value);

}  // namespace ampcheck::checks::diagnose
