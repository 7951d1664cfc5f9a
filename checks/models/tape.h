// SPDX-License-Identifier: Apache-2.0
// Define-by-run training in fp64: a model calls ops on a tape, each call is evaluated by its op's formula, and
// backward() walks the tape with the adjoints of the same formulas. What every call met stays on record.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checks/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks::models {

/// fp64 values of the trained tensors by name.
class Parameters {
 public:
  explicit Parameters(std::string net) : net_(std::move(net)) {}
  /// The parameter of that name; at first use `offset` + `scale` times normal numbers of its own stream.
  std::vector<double>& get(const std::string& name, const Shape& shape, double offset, double scale);

 private:
  std::string net_;
  std::map<std::string, std::vector<double>> values_;
};

/// A tensor on the tape.
struct Var {
  int id = -1;
};

/// One call of a built-in op and the tensors it met, by number on the tape.
struct RecordedCall {
  std::string name;  ///< "softmax_1": the op and its count on this tape
  OpCall call;       ///< dims, attributes and absent inputs; the rest as by default
  std::vector<std::pair<std::string, int>> inputs;
  std::string output_name;
  int output = -1;
};

/// All that one training step met.
struct StepRecord {
  std::vector<RecordedCall> calls;
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<double>> cotangents;  ///< of the loss; empty for integers and what the loss does not see
  double loss = 0;

  const RecordedCall* find(std::string_view name) const;
};

class Tape {
 public:
  explicit Tape(Parameters& parameters);
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape();

  Var data(const Shape& shape, std::vector<double> values);
  /// A trained tensor: normal numbers / sqrt(fan_in) at the start.
  Var weight(const std::string& name, const Shape& shape, std::int64_t fan_in);
  /// A trained tensor that starts at one value throughout.
  Var constant_start(const std::string& name, const Shape& shape, double value);

  /// Calls a built-in op on its inputs by name; attributes not given have their defaults. EnvironmentError if this build
  /// has no such op, Error for inputs that do not fit its signature.
  Var call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
           const std::vector<std::pair<std::string, double>>& attributes = {});
  /// The same elements under another shape.
  Var reshape(Var x, const Shape& shape);
  /// y[i] = x[map[i]]: transposed, repeated or picked elements.
  Var take(Var x, const std::vector<std::int64_t>& map, const Shape& shape);

  const Shape& shape(Var x) const { return record_.shapes[static_cast<std::size_t>(x.id)]; }

  /// Adds `weight` times a tensor of one element to the loss.
  void add_loss(Var value, double weight);
  /// Cotangents of everything the loss depends on; then one step of gradient descent on the parameters.
  void backward_and_update(double rate);
  StepRecord take_record() { return std::move(record_); }

 private:
  struct Evaluation;
  struct Entry {
    int from = -1, to = -1;            ///< of a take
    std::vector<std::int64_t> map;
    std::size_t call = 0;              ///< of a call
    std::unique_ptr<Evaluation> evaluation;
  };
  int push(const Shape& shape, std::vector<double> values);
  Var parameter(const std::string& name, const Shape& shape, double offset, double scale);
  std::vector<double>& cotangent(int id);
  void backward(Entry& entry);

  Parameters& parameters_;
  StepRecord record_;
  std::vector<Entry> entries_;
  std::vector<std::pair<int, std::vector<double>*>> trained_;
  std::vector<std::pair<int, double>> losses_;
  std::map<std::string, int> counts_;
};

}  // namespace ampcheck::checks::models
