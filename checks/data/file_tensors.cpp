// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/data/file_tensors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "checks/define/case_inputs.h"
#include "checks/define/fp64_ops.h"
#include "src/error.h"
#include "src/extent.h"
#include "src/index.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::string_view kPrefix = "inputs.";

/// What a call of a file is at. Throws Error for a call without it.
const CallData& held(const std::shared_ptr<const CallData>& data) {
  if (data == nullptr || data->file == nullptr)
    throw Error("[inputs] got a case at tensors of a file, want the file too: --inputs FILE");
  return *data;
}

class Binder {
 public:
  Binder(const OpDef& op, const CallData& data)
      : signature_(op.signature), file_(*data.file), range_(data.file_range) {}

  [[noreturn]] void fail(const std::string& what) const { throw Error("[inputs '" + file_.path + "'] " + what); }
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail("tensor '" + tensor + "', " + what);
  }

  OpCall call(std::optional<Dtype> storage) const {
    OpCall out = default_call(signature_, storage.value_or(file_storage()));
    out.range = range_;
    out.dims.clear();
    require_declared(out.storage);
    for (const TensorSpec& spec : signature_.inputs) {
      const Tensor* tensor = file_.find(spec.name);
      if (tensor == nullptr) {
        if (!spec.optional) fail("got " + file_.names() + ", want '" + spec.name + "', an input of " + signature_.name);
        out.absent.push_back(spec.name);
        continue;
      }
      bind_extents(spec, tensor->shape(), out.dims);
      bind_dtype(spec, *tensor, !storage, out);
    }
    for (const DimSpec& dim : signature_.dims)
      out.dims.try_emplace(dim.symbol, dim.standard[0]);  // only absent tensors have it
    require_further_extents(out);
    return out;
  }

  void require_values(const OpCall& call) const {
    for (const TensorSpec& spec : signature_.inputs) {
      if (!call.has(spec)) continue;
      const std::vector<double> values = file_input(call, spec);
      require_exact(spec.name, file_.find(spec.name)->shape(), values, call.dtype(spec));
      if (spec.role == Role::index || spec.role == Role::target) require_range(call, spec, values);
      if (spec.role == Role::mask)
        for (const double value : values)
          if (value != 0 && value != 1) fail(spec.name, "got " + number_text(value) + " in a mask, want 0 and 1");
    }
  }

  /// Outputs whose cotangent is there and fits.
  std::set<std::string> require_cotangents(const OpDef& op, const OpCall& call) const {
    std::set<std::string> out;
    NamedValues values;
    for (const TensorSpec& spec : signature_.inputs)
      if (call.has(spec)) values[spec.name] = file_input(call, spec);
    const reference::Recording formula = recorded(op, call, values);
    for (const OutputSpec& spec : signature_.outputs) {
      const std::string name = gradient_name(spec.name);
      const Tensor* tensor = file_.find(name);
      if (tensor == nullptr) continue;
      const Shape want = formula.output(spec.name).shape();
      const bool one = want.rank <= 1 && tensor->shape().rank <= 1 && want.count() == 1 &&
                       tensor->shape().count() == 1;  // a loss: () or [1]
      if (!one && !(tensor->shape() == want))
        fail(name, "got " + tensor->shape().str() + ", want " + want.str() + ", the shape of '" + spec.name + "'");
      require_float(name, *tensor);
      require_exact(name, want, to_doubles(tensor->view()), dtype_of(spec.type, call.storage));
      out.insert(spec.name);
    }
    return out;
  }

 private:
  /// The dtype of the first tensor that is stored as the case is.
  const TensorSpec* storage_spec() const {
    for (const TypeRule rule : {TypeRule::storage, TypeRule::parameter})
      for (const TensorSpec& spec : signature_.inputs)
        if (spec.type == rule && file_.find(spec.name) != nullptr) return &spec;
    return nullptr;
  }

  Dtype file_storage() const {
    const TensorSpec* spec = storage_spec();
    return spec == nullptr ? signature_.precision.storage.front() : file_.find(spec->name)->dtype();
  }

  void require_declared(Dtype storage) const {
    const auto& declared = signature_.precision.storage;
    if (std::find(declared.begin(), declared.end(), storage) != declared.end()) return;
    std::string list;
    for (const Dtype dtype : declared) list += (list.empty() ? "" : ", ") + std::string(name(dtype));
    fail((storage_spec() == nullptr ? "" : "tensor '" + storage_spec()->name + "', ") + "got " + name(storage) +
         ", want one that " + signature_.name + " is declared for: " + list +
         " (--dtype T reads values that are exact in T)");
  }

  void bind_extents(const TensorSpec& spec, const Shape& shape, Dims& dims) const {
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    if (static_cast<int>(symbols.size()) != shape.rank)
      fail(spec.name, "got shape " + shape.str() + ", want " + std::to_string(symbols.size()) + " dimensions: [" +
                          spec.dims + "]");
    for (int axis = 0; axis < shape.rank; ++axis) {
      const std::string& symbol = symbols[static_cast<std::size_t>(axis)];
      if (!has_dim(signature_, symbol)) continue;
      const auto [known, fresh] = dims.emplace(symbol, shape[axis]);
      if (known->second != shape[axis])
        fail(spec.name, "got shape " + shape.str() + ", want " + known->first + "=" + std::to_string(known->second) +
                            " in [" + spec.dims + "], as in the tensors before it");
    }
  }

  /// Extents that follow from other extents and from attributes.
  void require_further_extents(const OpCall& call) const {
    for (const TensorSpec& spec : signature_.inputs) {
      if (!call.has(spec)) continue;
      const Shape& shape = file_.find(spec.name)->shape();
      const std::vector<std::string> extents = OpSignature::symbols(spec);
      for (int axis = 0; axis < shape.rank; ++axis) {
        const std::string& extent = extents[static_cast<std::size_t>(axis)];
        const std::optional<std::int64_t> want = extent_value(extent, call.dims, call.attributes);
        if (want != shape[axis])
          fail(spec.name, "got shape " + shape.str() + ", want " + (want ? std::to_string(*want) + ", " : "") +
                              extent_origin(extent, call.dims, call.attributes) + ", in [" + spec.dims + "]");
      }
    }
  }

  void require_float(const std::string& tensor, const Tensor& held) const {
    if (!is_float(held.dtype())) fail(tensor, std::string("got ") + name(held.dtype()) + ", want floating numbers");
  }

  /// `alike`: tensors stored as the case is have one dtype in the file.
  void bind_dtype(const TensorSpec& spec, const Tensor& tensor, bool alike, OpCall& call) const {
    const Dtype usual = dtype_of(spec.type, call.storage), got = tensor.dtype();
    if (!is_float(usual) && is_float(got)) fail(spec.name, std::string("got ") + name(got) + ", want integers");
    if (is_float(usual) && spec.role != Role::mask) require_float(spec.name, tensor);
    if (spec.type == TypeRule::storage && alike && spec.role != Role::mask && got != usual)
      fail(spec.name,
           std::string("got ") + name(got) + ", want " + name(usual) + ", as '" + storage_spec()->name + "' has");
    if (spec.type != TypeRule::parameter || got == usual) return;
    // fp32 parameters beside 16-bit data; of a file that holds everything in fp32, only those that need it.
    const bool converted = file_storage() != call.storage;
    const bool fits = converted && first_inexact(to_doubles(tensor.view()), usual) < 0;
    if (fits) return;
    if (got != Dtype::fp32 || bytes(call.storage) != 2)
      fail(spec.name,
           std::string("got ") + name(got) + ", want " + name(usual) + (bytes(call.storage) == 2 ? " or fp32" : ""));
    call.dtypes[spec.name] = Dtype::fp32;
  }

  void require_exact(const std::string& tensor, const Shape& shape, const std::vector<double>& values,
                     Dtype dtype) const {
    const std::int64_t at = first_inexact(values, dtype);
    if (at < 0) return;
    const double value = values[static_cast<std::size_t>(at)];
    fail(tensor, "got " + number_text(value) + " at " + index_text(shape, at) + ", want a value that is exact in " +
                     name(dtype));
  }

  void require_range(const OpCall& call, const TensorSpec& spec, const std::vector<double>& values) const {
    const auto dim = call.dims.find(spec.index_dim);
    if (dim == call.dims.end()) return;
    std::set<double> sentinels;
    if (spec.role == Role::target)
      for (const AttributeSpec& attribute : signature_.attributes)
        if (attribute.is_sentinel()) sentinels.insert(call.attributes.number(attribute.name));
    for (const double value : values)
      if (!(value >= 0 && value < static_cast<double>(dim->second)) && !sentinels.contains(value))
        fail(spec.name, "got the index " + number_text(value) + ", want 0 to " + std::to_string(dim->second - 1));
  }

  const OpSignature& signature_;
  const TensorFile& file_;
  const std::string& range_;
};

}  // namespace

std::shared_ptr<const CallData> data_of_file(TensorFile file, std::shared_ptr<NetRuns> runs) {
  auto out = std::make_shared<CallData>();
  out->file_range = std::string(kPrefix) + file.digest();
  out->file = std::make_shared<const TensorFile>(std::move(file));
  out->runs = std::move(runs);
  return out;
}

bool is_file_range(std::string_view range) { return range.starts_with(kPrefix); }

const OpDef& op_for_file(const OpDef& op, const TensorFile& file, std::optional<Dtype> storage) {
  const OpDef* const in_fp64 = op_in_fp64(op);
  for (const TensorSpec& spec : op.signature.inputs)
    if (const Tensor* const tensor = file.find(spec.name);
        !storage && tensor != nullptr && spec.type == TypeRule::storage)
      storage = tensor->dtype();
  return in_fp64 != nullptr && storage == Dtype::fp64 ? *in_fp64 : op;
}

OpCall file_call(const OpDef& op, std::shared_ptr<const CallData> data, std::optional<Dtype> storage) {
  OpCall out = Binder(op, held(data)).call(storage);
  out.data = std::move(data);
  return out;
}

void require_file_call(const OpDef& op, OpCall& call, bool dumped) {
  const std::shared_ptr<const CallData> data = call.data;
  const Binder binder(op, held(data));
  if (call.range != data->file_range)
    binder.fail("got the contents " + data->file_range + ", want " + call.range + ", those of the case");
  const OpCall want = binder.call(call.storage);
  if (want.dims != call.dims || want.dtypes != call.dtypes || want.absent != call.absent)
    binder.fail("got a case at other tensors, want " + want.str(op.signature));
  if (op.signature.valid && !op.signature.valid(call.dims, call.attributes))
    binder.fail("got extents or attributes outside the domain of " + op.signature.name);
  binder.require_values(call);
  auto bound = std::make_shared<CallData>(*data);
  bound->cotangents = dumped ? std::set<std::string>() : binder.require_cotangents(op, call);
  call.data = std::move(bound);
}

std::vector<std::string> unused_inputs(const OpDef& op, const TensorFile& file) {
  std::vector<std::string> out;
  for (const NamedTensor& tensor : file.tensors) {
    const auto& outputs = op.signature.outputs;
    const bool cotangent = std::any_of(outputs.begin(), outputs.end(),
                                       [&](const OutputSpec& o) { return gradient_name(o.name) == tensor.name; });
    if (op.signature.input(tensor.name) == nullptr && !cotangent) out.push_back(tensor.name);
  }
  return out;
}

std::vector<double> file_input(const OpCall& call, const TensorSpec& spec) {
  const TensorFile& file = *held(call.data).file;
  const Tensor* tensor = file.find(spec.name);
  if (tensor == nullptr) throw Error("[inputs '" + file.path + "'] got no tensor '" + spec.name + "'");
  return to_doubles(tensor->view());
}

std::optional<std::vector<double>> file_cotangent(const OpCall& call, const std::string& output) {
  const CallData& data = held(call.data);
  if (!data.cotangents.contains(output)) return std::nullopt;
  return to_doubles(data.file->find(gradient_name(output))->view());
}

bool has_file_cotangents(const OpCall& call) { return call.data != nullptr && !call.data->cotangents.empty(); }

std::int64_t first_inexact(const std::vector<double>& values, Dtype dtype) {
  if (!is_float(dtype)) {
    const double low = dtype == Dtype::u8 ? 0 : dtype == Dtype::i32 ? -0x1p31 : -0x1p53;
    const double high = dtype == Dtype::u8 ? 255 : dtype == Dtype::i32 ? 0x1p31 - 1 : 0x1p53;
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [&](double v) { return !(v >= low && v <= high && v == std::nearbyint(v)); });
    return bad == values.end() ? -1 : bad - values.begin();
  }
  std::vector<double> rounded(values.size());
  round_values(format(dtype), RoundingMode{}, values, rounded);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(rounded[i] == values[i] || (std::isnan(values[i]) && std::isnan(rounded[i]))))
      return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace ampcheck::checks
