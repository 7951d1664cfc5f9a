// SPDX-License-Identifier: Apache-2.0
// An op whose kernels are Python functions, described as a plug-in describes its own.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/api/ampcheck/ampcheck_op.h"
#include "src/api/ampcheck/check.h"

namespace ampcheck::python {

/// The Python functions of an op. They are called with the GIL held, one at a time.
///     forward(storage, inputs, outputs, attributes)
///     backward(storage, inputs, cotangents, gradients, attributes)
/// A tensor is None or (memory, shape, dtype): a writable memoryview, valid during the call only.
struct Kernels {
  nanobind::object forward, backward;
  nanobind::object
      forget;  ///< forget(): from now on they remember nothing of earlier calls; None: nobody can make them
};

/// What describe() needs to point to. Nothing of it is read after the op is made, but for `kernels`.
class Description {
 public:
  explicit Description(const nanobind::dict& spec);
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  const ac_plugin& plugin() const { return plugin_; }
  const std::shared_ptr<Kernels>& kernels() const { return kernels_; }

 private:
  const char* keep(const nanobind::handle& text);
  void read_inputs(const nanobind::list& inputs);
  void read_dims(const nanobind::list& dims);
  void read_attributes(const nanobind::list& attributes);
  void read_contract(const nanobind::dict& contract);
  double& ulps_of(const std::string& function);

  std::shared_ptr<Kernels> kernels_ = std::make_shared<Kernels>();
  std::deque<std::string> texts_;
  std::deque<std::vector<double>> numbers_;
  std::vector<ac_input> inputs_;
  std::vector<ac_output> outputs_;
  std::vector<ac_attribute> attributes_;
  std::vector<ac_dim> dims_;
  std::vector<ac_form> forms_;
  std::vector<std::int32_t> storage_;
  ac_math math_ = {};
  ac_contract contract_ = {};
  ac_op op_ = {};
  ac_plugin plugin_ = {};
};

/// An op with the functions that it calls.
struct DescribedOp {
  check::Op op;
  std::shared_ptr<Kernels> kernels;
};

/// Throws check::UsageError.
DescribedOp describe(const nanobind::dict& spec);

}  // namespace ampcheck::python
