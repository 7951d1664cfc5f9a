// SPDX-License-Identifier: Apache-2.0
// Descriptions of plug-ins: the fields of every struct from bytes, texts among them; a count may lie within what is
// there, since no reader could tell a pointer that does not hold what it declares.
#include <deque>
#include <vector>

#include "checks/doors/plugin.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

int32_t no_kernel(const ac_call*) { return 0; }

/// Everything that a description points to, for its life.
class Description {
 public:
  explicit Description(fuzz::Bytes bytes) : from_(bytes) {}

  const ac_plugin* read() {
    ac_plugin& plugin = plugin_;
    plugin.struct_size = size<ac_plugin>();
    plugin.abi = some(15) ? from_.take<std::uint32_t>() : AMPCHECK_OP_ABI;
    plugin.name = text();
    plugin.error = some(15) ? text() : nullptr;
    plugin.ops = list<ac_op>(ops_, plugin.op_count, 2, [this](ac_op& op) { fill(op); });
    return &plugin;
  }

 private:
  /// True once in so many times.
  bool some(int often) { return from_.take<std::uint8_t>() % (often + 1) == often; }
  template <class T>
  std::uint32_t size() {
    constexpr auto kWhole = static_cast<std::uint32_t>(sizeof(T));
    return some(31) ? from_.take<std::uint32_t>() % (kWhole + 1) : kWhole;
  }
  const char* text() {
    if (some(15)) return nullptr;
    texts_.push_back(from_.word());
    return texts_.back().c_str();
  }
  std::int32_t number() { return some(15) ? from_.take<std::int32_t>() : from_.take<std::uint8_t>() % 8; }

  template <class T, class Fill>
  const T* list(std::deque<std::vector<T>>& lists, std::int32_t& count, int most, Fill fill) {
    const int n = from_.take<std::uint8_t>() % (most + 1);
    auto& out = lists.emplace_back(static_cast<std::size_t>(n));
    for (T& item : out) {
      item = T{};
      item.struct_size = size<T>();
      fill(item);
    }
    count = some(31) ? -from_.take<std::uint8_t>() : n;
    return n == 0 && some(3) ? nullptr : out.data();
  }

  void fill_tensors(ac_op& op) {
    op.inputs = list<ac_input>(inputs_, op.input_count, 3, [this](ac_input& input) {
      input.flags = static_cast<std::uint32_t>(number());
      input.name = text();
      input.dims = text();
      input.role = number();
      input.type = number();
      input.domain = number();
      input.index_dim = some(3) ? text() : nullptr;
    });
    const auto output = [this](ac_output& out) {
      out.flags = static_cast<std::uint32_t>(number());
      out.name = text();
      out.type = number();
      out.in_place = some(3) ? text() : nullptr;
    };
    op.outputs = list<ac_output>(outputs_, op.output_count, 2, output);
    op.saved = list<ac_output>(outputs_, op.saved_count, 2, output);
  }

  ac_contract& contract() {
    ac_contract& out = contracts_.emplace_back();
    out = {};
    out.struct_size = size<ac_contract>();
    storage_.push_back({number(), number(), number()});
    out.storage_count = from_.take<std::uint8_t>() % 4;
    out.storage = storage_.back().data();
    out.compute = number();
    out.accumulate = number();
    out.summation_depth = number();
    out.flushes_subnormals = number();
    out.atomics = number();
    out.largest_input = number();
    out.smallest_scale = number();
    out.largest_scale = number();
    if (some(1)) {
      ac_math& math = maths_.emplace_back();
      math = {};
      math.struct_size = size<ac_math>();
      math.cuda = number();
      math.exp = from_.take<double>();
      math.rsqrt = from_.take<double>();
      out.math = &math;
    }
    return out;
  }

  void fill(ac_op& op) {
    op.flags = static_cast<std::uint32_t>(number());
    op.name = text();
    op.summary = text();
    op.devices = static_cast<std::uint32_t>(number());
    op.dims = list<ac_dim>(dims_, op.dim_count, 3, [this](ac_dim& dim) {
      dim.multiple_of = number();
      dim.symbol = text();
      for (std::int64_t& sample : dim.samples)
        sample = some(15) ? from_.take<std::int64_t>() : from_.take<std::uint8_t>() % 12;
      dim.least = some(7) ? from_.take<std::int64_t>() : 0;
      dim.most = some(7) ? from_.take<std::int64_t>() : 0;
    });
    fill_tensors(op);
    op.attributes = list<ac_attribute>(attributes_, op.attribute_count, 2, [this](ac_attribute& attribute) {
      attribute.name = text();
      attribute.default_value = from_.take<double>();
      attribute.other_count = from_.take<std::uint8_t>() % 3;
      values_.push_back({from_.take<double>(), from_.take<double>()});
      attribute.other_values = values_.back().data();
    });
    op.forms = list<ac_form>(forms_, op.form_count, 2, [this](ac_form& form) {
      form.flags = static_cast<std::uint32_t>(number());
      form.name = text();
      form.formula = text();
    });
    if (some(1)) op.contract = &contract();
    op.row_dim = some(1) ? text() : nullptr;
    op.forward = some(15) ? nullptr : no_kernel;
    op.backward = some(3) ? nullptr : no_kernel;
    op.jvp = some(3) ? no_kernel : nullptr;
    op.kinks = list<ac_kink>(kinks_, op.kink_count, 2, [this](ac_kink& kink) {
      kink.input = text();
      kink.at = from_.take<double>();
      kink.convention = text();
    });
    op.extensions = list<ac_extension>(extensions_, op.extension_count, 2, [this](ac_extension& extension) {
      extension.flags = static_cast<std::uint32_t>(number());
      extension.name = text();
    });
  }

  fuzz::Bytes from_;
  ac_plugin plugin_{};
  std::deque<std::string> texts_;
  std::deque<std::vector<ac_op>> ops_;
  std::deque<std::vector<ac_dim>> dims_;
  std::deque<std::vector<ac_input>> inputs_;
  std::deque<std::vector<ac_output>> outputs_;
  std::deque<std::vector<ac_attribute>> attributes_;
  std::deque<std::vector<ac_form>> forms_;
  std::deque<std::vector<ac_kink>> kinks_;
  std::deque<std::vector<ac_extension>> extensions_;
  std::deque<std::vector<double>> values_;
  std::deque<std::vector<std::int32_t>> storage_;
  std::deque<ac_contract> contracts_;
  std::deque<ac_math> maths_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Description description(fuzz::Bytes(data, size));
  try {
    fuzz::require(!checks::ops_of(description.read(), "fuzz").empty(), "a description that is taken has ops");
  } catch (const checks::PluginError&) {
  }
  return 0;
}
