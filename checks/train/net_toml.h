// SPDX-License-Identifier: Apache-2.0
// A user's own net as a TOML file:
//   name = "mlp"              seeds the initial weights with the run's seed (default: net)
//   data = "digits"           digits (8x8 images as rows of 64; [rows, 1, 8, 8] for a conv2d), text (characters) or
//   random (normal) width = 64                of random inputs and targets, whose loss is mse
//   [[layers]]
//   type = "linear"
//   outputs = 64              of linear, conv2d, embedding; linear: as many as there are classes unless given
//   name = "hidden"           unless given, those with weights are layer0, layer1, ...
//   from = "hidden"           reads that layer's output in place of the one before it
//   autocast = "off"          a region of autocast for this layer: off, fp16 or bf16; off: its input is widened to fp32
//   first no_grad = true            the layer and what comes before it alone gets no gradient
// Types: linear, conv2d (3x3, padding 1), max_pool2d (2x2), flatten, embedding (first, of text), attention (causal;
// heads = 1), layer_norm, rms_norm, relu, gelu, gelu_tanh, silu, sigmoid, tanh, softmax, log_softmax, add and mul (of =
// "name": with that layer's output), and op: any op of one input, with weights and biases that are trained,
//   type = "op"
//   library = "libmy_op.so"   beside the TOML file, or a launcher's TOML; none: a built-in op
//   op = "my_op"              of a library that has more than one
//   attributes = { eps = 1e-6 }
//   outputs = 64              extent of a weight's dimension that its input has not
//   cast_inputs = "fp32"      torch's custom_fwd(cast_inputs=): fp32, fp16 or bf16; none: it runs in the widest dtype
//   that it is handed
// A table [train] holds the run's settings, which are not read here.
#pragma once

#include "checks/train/net.h"
#include "src/toml_file.h"

namespace ampcheck::checks::train {

/// The net of a file, with the batch size, loss and seed of `options`; its data in the folder of that name, or where it
/// is found if empty. TomlError with line and key for what the file has wrong; a layer that does not fit its input is
/// an Error at the first forward.
Net read_net(const TomlFile& file, const NetOptions& options, const std::string& folder);

}  // namespace ampcheck::checks::train
