// SPDX-License-Identifier: Apache-2.0
#include "tools/python/src/described_op.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>

#include "checks/run/run_case.h"
#include "src/error.h"

namespace nb = nanobind;

namespace ampcheck::python {

namespace {

struct DtypeName {
  const char* name;
  std::int32_t code;
};
constexpr DtypeName kDtypes[] = {{"fp64", AC_FP64}, {"fp32", AC_FP32},     {"fp16", AC_FP16},
                                 {"bf16", AC_BF16}, {"e4m3fn", AC_E4M3FN}, {"e5m2", AC_E5M2},
                                 {"i32", AC_I32},   {"i64", AC_I64},       {"u8", AC_U8}};

const char* name_of(std::int32_t dtype) {
  for (const DtypeName& known : kDtypes)
    if (known.code == dtype) return known.name;
  return "?";
}

std::int32_t dtype_of(const std::string& name) {
  for (const DtypeName& known : kDtypes)
    if (name == known.name) return known.code;
  throw check::UsageError("[dtypes] got '" + name + "', want fp64, fp32, fp16, bf16, e4m3fn or e5m2");
}

/// None for a tensor that is not there, else (memory, shape, dtype). What is described is dense and row-major.
nb::object tensor(const ac_tensor* from) {
  if (from == nullptr) return nb::none();
  const ac_dltensor& dl = from->dl;
  nb::list shape;
  Py_ssize_t bytes = dl.dtype.bits / 8;
  for (std::int32_t axis = 0; axis < dl.ndim; ++axis) {
    shape.append(dl.shape[axis]);
    bytes *= static_cast<Py_ssize_t>(dl.shape[axis]);
  }
  static char nothing = 0;  // an empty tensor may have no memory
  char* const data = dl.data == nullptr ? &nothing : static_cast<char*>(dl.data);
  const nb::object memory = nb::steal(PyMemoryView_FromMemory(data, bytes, PyBUF_WRITE));
  if (!memory.is_valid()) nb::raise_python_error();
  return nb::make_tuple(memory, nb::tuple(shape), name_of(from->dtype));
}

nb::list tensors(const ac_tensor* const* from, std::int32_t count) {
  nb::list out;
  for (std::int32_t i = 0; i < count; ++i) out.append(tensor(from[i]));
  return out;
}

nb::list attributes(const ac_call& call) {
  nb::list out;
  for (std::int32_t i = 0; i < call.attribute_count; ++i) out.append(call.attributes[i].value);
  return out;
}

/// What a Python exception says, in one line: its type and its text.
std::string said(nb::python_error& error) {
  const nb::object own = nb::getattr(error.value(), "ampcheck_said", nb::none());  // it says the place, too
  if (!own.is_none()) return nb::cast<std::string>(own);
  std::string out = nb::cast<std::string>(error.type().attr("__name__"));
  try {
    const auto text = nb::cast<std::string>(nb::str(error.value()));
    if (!text.empty()) out += ": " + text;
  } catch (...) {  // its __str__ raises in turn
  }
  return out;
}

/// Whether there was not as much memory as it asked for: that says nothing of what it computes.
bool is_for_memory(const std::string& text) {
  const auto has = [&](const char* words) { return text.find(words) != std::string::npos; };
  return has("MemoryError") || has("allocate memory") || has("out of memory") || has("not enough memory");
}

/// What an exception of a function says, where it is a fault of this function.
std::string fault_of(nb::python_error& error) {
  const std::string text = said(error);
  if (is_for_memory(text)) throw EnvironmentError(std::string(checks::kForMemory) + " the function: " + text);
  return text;
}

/// Calls a function. An exception of it is an error code of the kernel, so it becomes a finding of the case.
template <class F>
std::int32_t called(const ac_call* call, F work) {
  const nb::gil_scoped_acquire gil;
  try {
    work(*static_cast<Kernels*>(call->user));
    return 0;
  } catch (nb::python_error& error) {
    call->host->set_error(call->host->context, fault_of(error).c_str());
  } catch (const std::exception& error) {
    call->host->set_error(call->host->context, error.what());
  }
  return 1;
}

std::int32_t forward(const ac_call* call) {
  return called(call, [&](Kernels& kernels) {
    kernels.forward(name_of(call->storage), tensors(call->inputs, call->input_count),
                    tensors(call->outputs, call->output_count), attributes(*call));
  });
}

std::int32_t backward(const ac_call* call) {
  return called(call, [&](Kernels& kernels) {
    kernels.backward(name_of(call->storage), tensors(call->inputs, call->input_count),
                     tensors(call->cotangents, call->output_count), tensors(call->gradients, call->input_count),
                     attributes(*call));
  });
}

std::int32_t accumulator_of(const std::string& name) {
  constexpr DtypeName kCores[] = {
      {"tensor_core(any)", AC_TENSOR_CORE_ANY},       {"tensor_core(v100)", AC_TENSOR_CORE_V100},
      {"tensor_core(turing)", AC_TENSOR_CORE_TURING}, {"tensor_core(a100)", AC_TENSOR_CORE_A100},
      {"tensor_core(ada)", AC_TENSOR_CORE_ADA},       {"tensor_core(h100)", AC_TENSOR_CORE_H100},
      {"tensor_core(h200)", AC_TENSOR_CORE_H100},     {"tensor_core(b200)", AC_TENSOR_CORE_B200}};
  for (const DtypeName& core : kCores)
    if (name == core.name) return core.code;
  if (name == "fp32" || name == "fp16" || name == "bf16") return dtype_of(name);
  throw check::UsageError("[contract] accumulate, got '" + name + "', want fp32, fp16, bf16 or tensor_core(h100)");
}

template <class T>
T field(const nb::dict& from, const char* key) {
  return nb::cast<T>(from[key]);
}

std::int32_t count(std::size_t size) { return static_cast<std::int32_t>(size); }

}  // namespace

const char* Description::keep(const nb::handle& text) {
  return texts_.emplace_back(nb::cast<std::string>(text)).c_str();
}

void Description::read_inputs(const nb::list& inputs) {
  for (const nb::handle item : inputs) {
    const auto input = nb::cast<nb::dict>(item);
    ac_input out = {};
    out.struct_size = sizeof out;
    out.name = keep(input["name"]);
    out.dims = keep(input["dims"]);
    out.role = field<std::int32_t>(input, "role");
    out.type = field<std::int32_t>(input, "type");
    out.domain = field<std::int32_t>(input, "domain");
    out.flags = field<std::uint32_t>(input, "flags");
    if (!input["index_dim"].is_none()) out.index_dim = keep(input["index_dim"]);
    inputs_.push_back(out);
  }
}

void Description::read_dims(const nb::list& dims) {
  for (const nb::handle item : dims) {
    const auto dim = nb::cast<nb::dict>(item);
    const auto samples = field<std::vector<std::int64_t>>(dim, "samples");
    ac_dim out = {};
    out.struct_size = sizeof out;
    out.symbol = keep(dim["symbol"]);
    out.multiple_of = field<std::int32_t>(dim, "multiple");
    out.least = field<std::int64_t>(dim, "least");
    out.most = field<std::int64_t>(dim, "most");
    for (std::size_t i = 0; i < 3; ++i) out.samples[i] = samples.at(i);
    dims_.push_back(out);
  }
}

void Description::read_attributes(const nb::list& attributes) {
  for (const nb::handle item : attributes) {
    const auto attribute = nb::cast<nb::dict>(item);
    const auto& others = numbers_.emplace_back(field<std::vector<double>>(attribute, "others"));
    ac_attribute out = {};
    out.struct_size = sizeof out;
    out.name = keep(attribute["name"]);
    out.default_value = field<double>(attribute, "value");
    out.other_values = others.data();
    out.other_count = count(others.size());
    attributes_.push_back(out);
  }
}

double& Description::ulps_of(const std::string& function) {
  const std::pair<const char*, double*> known[] = {
      {"exp", &math_.exp},     {"expm1", &math_.expm1}, {"log", &math_.log},
      {"log1p", &math_.log1p}, {"tanh", &math_.tanh},   {"erf", &math_.erf},
      {"erfc", &math_.erfc},   {"sqrt", &math_.sqrt},   {"rsqrt", &math_.rsqrt}};
  for (const auto& [name, ulps] : known)
    if (function == name) return *ulps;
  throw check::UsageError("[contract] ulps, got '" + function +
                          "', want exp, expm1, log, log1p, tanh, erf, erfc, sqrt or rsqrt");
}

void Description::read_contract(const nb::dict& contract) {
  for (const std::string& name : field<std::vector<std::string>>(contract, "storage"))
    storage_.push_back(dtype_of(name));
  math_.struct_size = sizeof math_;
  const auto math = field<std::string>(contract, "math");
  if (math != "cuda" && math != "glibc" && math != "numpy")
    throw check::UsageError("[contract] math, got '" + math + "', want numpy, cuda or glibc");
  math_.cuda = math == "cuda" ? 1 : 0;
  for (const auto& [function, ulps] : field<nb::dict>(contract, "ulps"))
    ulps_of(nb::cast<std::string>(function)) = nb::cast<double>(ulps);
  contract_.struct_size = sizeof contract_;
  contract_.storage = storage_.data();
  contract_.storage_count = count(storage_.size());
  contract_.accumulate = accumulator_of(field<std::string>(contract, "accumulate"));
  contract_.atomics = field<bool>(contract, "atomics") ? 1 : 0;
  contract_.flushes_subnormals = field<bool>(contract, "flushes_subnormals") ? 1 : 0;
  contract_.math = &math_;
}

Description::Description(const nb::dict& spec) {
  kernels_->forward = spec["forward"];
  kernels_->backward = spec["backward"];
  kernels_->forget = spec["forget"];
  read_inputs(field<nb::list>(spec, "inputs"));
  read_dims(field<nb::list>(spec, "dims"));
  read_attributes(field<nb::list>(spec, "attributes"));
  read_contract(field<nb::dict>(spec, "contract"));
  for (const nb::handle item : field<nb::list>(spec, "outputs")) {
    const auto output = nb::cast<nb::dict>(item);
    ac_output out = {};
    out.struct_size = sizeof out;
    out.name = keep(output["name"]);
    out.type = field<std::int32_t>(output, "type");
    out.flags = field<std::uint32_t>(output, "flags");
    if (!output["dims"].is_none()) out.dims = keep(output["dims"]);
    outputs_.push_back(out);
  }
  for (const nb::handle item : field<nb::list>(spec, "forms")) {
    ac_form form = {};
    form.struct_size = sizeof form;
    form.formula = keep(item);
    forms_.push_back(form);
  }
  op_.struct_size = sizeof op_;
  op_.flags = AC_OP_SERIAL;  // nothing says that a Python function may be entered twice
  op_.name = keep(spec["name"]);
  op_.summary = keep(spec["summary"]);
  op_.inputs = inputs_.data();
  op_.input_count = count(inputs_.size());
  op_.outputs = outputs_.data();
  op_.output_count = count(outputs_.size());
  op_.attributes = attributes_.data();
  op_.attribute_count = count(attributes_.size());
  op_.dims = dims_.data();
  op_.dim_count = count(dims_.size());
  op_.forms = forms_.data();
  op_.form_count = count(forms_.size());
  op_.contract = &contract_;
  op_.row_dim = keep(spec["row_dim"]);
  op_.forward = forward;
  op_.backward = kernels_->backward.is_none() ? nullptr : backward;
  op_.user = kernels_.get();
  plugin_ = {sizeof plugin_, AMPCHECK_OP_ABI, "python", nullptr, 1, 0, &op_};
}

DescribedOp describe(const nb::dict& spec) {
  const Description description(spec);
  std::function<void()> forget;
  if (!description.kernels()->forget.is_none())
    forget = [kernels = description.kernels().get()] {  // which the op's own functions need as well
      const nb::gil_scoped_acquire gil;
      try {
        kernels->forget();
      } catch (nb::python_error& error) {
        throw std::runtime_error(fault_of(error));
      }
    };
  const nb::gil_scoped_release free;  // recording a formula takes a while
  check::Library library = check::describe(description.plugin(), "python", std::move(forget));
  return {library.ops.front(), description.kernels()};
}

}  // namespace ampcheck::python
