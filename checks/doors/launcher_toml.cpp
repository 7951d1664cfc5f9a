// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/launcher_toml.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "checks/define/second_order.h"
#include "checks/doors/plugin.h"
#include "checks/doors/plugin_kernel.h"
#include "checks/doors/toml_launchers.h"
#include "src/toml_file.h"

namespace ampcheck::checks {

namespace {

std::int32_t run_forward(const ac_call* call) { return static_cast<LauncherOp*>(call->user)->forward->run(*call); }
/// An op of which no input has a gradient needs no [backward].
std::int32_t run_backward(const ac_call* call) {
  const auto& backward = static_cast<LauncherOp*>(call->user)->backward;
  return backward ? backward->run(*call) : 0;
}
std::int32_t run_double_backward(const ac_call* call) {
  return static_cast<LauncherOp*>(call->user)->double_backward->run(*call);
}

/// Where the parts of the description come from, by what messages about the description call them.
struct Part {
  std::string words;  ///< "input 2", "form 'one pass'"
  TomlPlace place;
  const TomlNode* node;  ///< its table, or null
};

/// "library" may be a kernel too, which device ptx runs; else empty.
std::string kernel_in(std::filesystem::path library, const std::string& file) {
  if (!is_kernel_file(library.string())) return "";
  if (library.is_relative()) library = std::filesystem::path(file).parent_path() / library;
  return library.string();
}

class Reader {
 public:
  Reader(TomlFile file, LauncherOp& out)
      : file_(std::move(file)),
        out_(out),
        root_(file_, file_.root(), "file",
              {"library", "name", "summary", "formula", "form", "rows", "accumulates", "dims", "inputs", "outputs",
               "saved", "attributes", "contract", "dtypes", "forward", "backward", "double_backward", "nvcc"}) {}

  TomlOp read() {
    if (out_.kernel_file.empty()) out_.kernel_file = kernel_in(root_.text("library").value_or(""), file_.path());
    read_dims();
    read_inputs();
    read_outputs();
    read_attributes();
    read_contract();
    read_forms();
    read_rows();
    read_accumulates();
    read_backward_tensors();
    assemble();
    std::vector<OpDef> ops = definition();
    for (OpDef& op : ops) op.plugin = file_.path();
    TomlOp made{std::move(ops.front()), {}, {}};
    if (ops.size() > 1) made.backward_op = std::move(ops.back());
    read_launchers(file_, root_, made.op.signature, out_);
    return made;
  }

 private:
  /// Calls take(name, value, place of the name) for the entries of a table of the root, in their order.
  template <class F>
  void each(const char* key, F take) {
    const TomlNode* const table = root_.find(key);
    if (table == nullptr) return;
    if (table->kind != TomlNode::Kind::table)
      root_.fail(key, std::string("got ") + kind_name(table->kind) + ", want a table");
    for (const TomlEntry& entry : table->entries) take(entry.key, entry.value, entry.place);
  }

  void note(std::string words, const TomlPlace& place, const TomlNode* node) {
    parts_.push_back(
        {std::move(words), place, node != nullptr && node->kind == TomlNode::Kind::table ? node : nullptr});
  }
  static std::string number(const char* what, std::size_t index) {
    return std::string(what) + " " + std::to_string(index + 1);
  }

  void read_dims() {
    each("dims", [&](const std::string& symbol, const TomlNode& node, TomlPlace at) {
      note(number("dim", out_.dims.size()), at, &node);
      ac_dim dim = {sizeof(ac_dim), 1, out_.keep(symbol), {0, 0, 0}, 0, 0};
      std::vector<double> samples;
      TomlPlace samples_at = node.place;
      if (node.kind == TomlNode::Kind::array) {
        for (const TomlEntry& item : node.entries)
          samples.push_back(item.value.kind == TomlNode::Kind::integer ? item.value.number : -1);
      } else {
        const TomlSection section(file_, node, "dim '" + symbol + "'", {"samples", "least", "most", "multiple_of"});
        samples = section.numbers("samples");
        samples_at = section.place("samples");
        dim.least = section.integer("least").value_or(0);
        dim.most = section.integer("most").value_or(0);
        const std::int64_t multiple = section.integer("multiple_of").value_or(1);
        if (multiple < 1 || multiple > (std::int64_t{1} << 24))
          section.fail("multiple_of", "got " + std::to_string(multiple) + ", want 1 to 2^24");
        dim.multiple_of = static_cast<std::int32_t>(multiple);
      }
      constexpr double kMostExtent = 1 << 24;
      if (samples.size() != 3 || std::any_of(samples.begin(), samples.end(), [](double v) {
            return !(v >= 1 && v <= kMostExtent) || v != static_cast<double>(static_cast<std::int64_t>(v));
          }))
        file_.fail(samples_at, "dim '" + symbol + "', want its extents in three sample shapes, such as [5, 64, 2]");
      for (std::size_t i = 0; i < 3; ++i) dim.samples[i] = static_cast<std::int64_t>(samples[i]);
      out_.dims.push_back(dim);
    });
  }

  void read_inputs() {
    each("inputs", [&](const std::string& name, const TomlNode& node, TomlPlace at) {
      note(number("input", out_.inputs.size()), at, &node);
      ac_input input = {};
      input.struct_size = sizeof input;
      input.name = out_.keep(name);
      if (node.kind == TomlNode::Kind::text) {
        input.dims = out_.keep(node.text);
      } else {
        const TomlSection section(file_, node, "input '" + name + "'",
                                  {"dims", "role", "type", "domain", "index_dim", "optional", "gradient"});
        input.dims = out_.keep(section.text("dims").value_or(""));
        input.role = section
                         .choice("role", {"data", "weight", "bias", "mask", "index", "target", "probability",
                                          "log_probability", "angle", "quantized"})
                         .value_or(AC_DATA);
        const bool integer = input.role == AC_INDEX || input.role == AC_TARGET;
        if (section.text("type") == "i32")
          section.fail("type", "got 'i32', want none: an index is int64, and an argument \"const int32_t* " + name +
                                   "\" gets a copy in int32");
        input.type = section.choice("type", kTypes)
                         .value_or(integer                                               ? AC_TYPE_I64
                                   : input.role == AC_MASK || input.role == AC_QUANTIZED ? AC_TYPE_U8
                                                                                         : AC_TYPE_STORAGE);
        input.domain = section.choice("domain", {"any", "positive", "unit_interval"}).value_or(AC_ANY);
        if (const auto dim = section.text("index_dim")) input.index_dim = out_.keep(*dim);
        if (section.flag("optional")) input.flags |= AC_OPTIONAL;
        if (section.find("gradient") != nullptr && !section.flag("gradient")) input.flags |= AC_NO_GRADIENT;
      }
      out_.inputs.push_back(input);
    });
    if (out_.inputs.empty())
      file_.fail(root_.place("inputs"), "inputs, got none, want such as inputs = { x = \"N D\" }");
  }

  void read_outputs() {
    each("outputs", [&](const std::string& name, const TomlNode& node, TomlPlace at) {
      note(number("output", out_.outputs.size()), at, &node);
      out_.outputs.push_back(output(name, node, "output", AC_TYPE_STORAGE));
    });
    if (out_.outputs.empty())
      file_.fail(root_.place("outputs"), "outputs, got none, want such as outputs = { y = \"N D\" }");
    each("saved", [&](const std::string& name, const TomlNode& node, TomlPlace at) {
      note(number("saved", out_.saved.size()), at, &node);
      out_.saved.push_back(output(name, node, "saved", AC_TYPE_FP32));
    });
  }

  ac_output output(const std::string& name, const TomlNode& node, const std::string& what, std::int32_t type) {
    ac_output out = {};
    out.struct_size = sizeof out;
    out.name = out_.keep(name);
    out.type = type;
    std::optional<std::string> dims;
    if (node.kind == TomlNode::Kind::text) {
      dims = node.text;
    } else {
      const TomlSection section(file_, node, what + " '" + name + "'",
                                what == "output" ? std::vector<std::string>{"dims", "type", "in_place", "cotangent"}
                                                 : std::vector<std::string>{"dims", "type"});
      dims = section.text("dims");
      out.type = section.choice("type", kTypes).value_or(type);
      if (const auto over = section.text("in_place")) out.in_place = out_.keep(*over);
      if (section.find("cotangent") != nullptr && !section.flag("cotangent")) out.flags |= AC_NO_GRADIENT;
    }
    if (dims) out.dims = out_.keep(*dims);
    return out;
  }

  void read_attributes() {
    each("attributes", [&](const std::string& name, const TomlNode& node, TomlPlace at) {
      note(number("attribute", out_.attributes.size()), at, &node);
      ac_attribute attribute = {};
      attribute.struct_size = sizeof attribute;
      attribute.name = out_.keep(name);
      std::vector<double>& others = out_.others.emplace_back();
      if (node.kind == TomlNode::Kind::table) {
        const TomlSection section(file_, node, "attribute '" + name + "'", {"default", "try"});
        const auto value = section.number("default");
        if (!value) file_.fail(node.place, "attribute '" + name + "', got no default");
        attribute.default_value = *value;
        others = section.numbers("try");
      } else if (node.kind == TomlNode::Kind::number || node.kind == TomlNode::Kind::integer) {
        attribute.default_value = node.number;
      } else {
        file_.fail(node.place, "attribute '" + name + "', got " + kind_name(node.kind) +
                                   ", want a number or { default = 1e-6, try = [1e-3] }");
      }
      attribute.other_values = others.data();
      attribute.other_count = static_cast<std::int32_t>(std::min<std::size_t>(others.size(), 1000));
      out_.attributes.push_back(attribute);
    });
  }

  void read_contract() {
    out_.contract.struct_size = sizeof(ac_contract);
    out_.math.struct_size = sizeof(ac_math);
    if (!out_.kernel_file.empty()) {  // a GPU's functions, unless the file says otherwise
      out_.math.cuda = 1;
      out_.contract.math = &out_.math;
    }
    const TomlNode* const node = root_.find("contract");
    if (node == nullptr) return;
    const TomlSection section(file_, *node, "contract",
                              {"storage", "accumulate", "summation_depth", "flushes_subnormals", "atomics", "strided",
                               "serial", "devices", "math", "largest_input", "loss_scales"});
    note("contract", root_.place("contract"), node);
    const std::vector<std::string> types = section.texts("storage");
    for (std::size_t i = 0; i < types.size(); ++i)
      out_.storage.push_back(word(types[i], kLauncherFloats, section, "storage") + AC_FP64);
    if (const auto text = section.text("accumulate")) {
      Accumulator accumulator;
      if (!find_accumulator(*text, accumulator)) section.fail("accumulate", unknown_accumulator(*text));
      out_.contract.accumulate = ac_accumulator_of(accumulator);
    }
    const std::int64_t depth = section.integer("summation_depth").value_or(0);
    if (depth < 0 || depth > (1 << 24))
      section.fail("summation_depth", "got " + std::to_string(depth) + ", want 0 to 2^24");
    out_.contract.summation_depth = static_cast<std::int32_t>(depth);
    out_.contract.flushes_subnormals = section.flag("flushes_subnormals");
    out_.contract.atomics = section.flag("atomics");
    out_.contract.largest_input = section.number("largest_input").value_or(0);
    if (section.find("loss_scales") != nullptr) {
      const std::vector<double> scales = section.numbers("loss_scales");
      if (scales.size() != 2) section.fail("loss_scales", "want the smallest and the largest, such as [1, 65536]");
      out_.contract.smallest_scale = scales[0];
      out_.contract.largest_scale = scales[1];
    }
    if (section.flag("strided")) out_.op.flags |= AC_OP_STRIDED;
    if (section.flag("serial")) out_.op.flags |= AC_OP_SERIAL;
    for (const std::string& device : section.texts("devices"))
      out_.op.devices |= 1u << word(device, {"cpu", "cuda"}, section, "devices");
    read_math(section);
  }

  void read_math(const TomlSection& contract) {
    const TomlNode* const node = contract.find("math");
    if (node == nullptr) return;
    out_.contract.math = &out_.math;
    if (node->kind == TomlNode::Kind::text) {
      out_.math.cuda = *contract.choice("math", {"glibc", "cuda"});
      return;
    }
    const TomlSection section(file_, *node, "math",
                              {"table", "exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt", "rsqrt"});
    note("math", node->place, node);
    out_.math.cuda = section.choice("table", {"glibc", "cuda"}).value_or(0);
    const std::pair<const char*, double*> ulps[] = {
        {"exp", &out_.math.exp},     {"expm1", &out_.math.expm1}, {"log", &out_.math.log},
        {"log1p", &out_.math.log1p}, {"tanh", &out_.math.tanh},   {"erf", &out_.math.erf},
        {"erfc", &out_.math.erfc},   {"sqrt", &out_.math.sqrt},   {"rsqrt", &out_.math.rsqrt}};
    for (const auto& [key, to] : ulps) *to = section.number(key).value_or(0);
  }

  /// The position of a word of an array.
  int word(const std::string& text, const std::vector<std::string>& words, const TomlSection& section,
           const char* key) const {
    const auto found = std::find(words.begin(), words.end(), text);
    std::string list;
    for (const std::string& known : words) list += (list.empty() ? "" : ", ") + known;
    if (found == words.end()) section.fail(key, "got '" + text + "', want " + list);
    return static_cast<int>(found - words.begin());
  }

  void add_form(const TomlNode& formula, const std::string& name, bool one_pass) {
    note("form '" + name + "'", formula.place, nullptr);
    formulas_.emplace_back("form '" + name + "'", &formula);
    ac_form form = {};
    form.struct_size = sizeof form;
    form.flags = one_pass ? std::uint32_t{AC_FORM_ONE_PASS} : 0u;
    form.name = out_.keep(name);
    form.formula = out_.keep(formula.text);
    out_.forms.push_back(form);
  }

  void read_forms() {
    if (root_.text("formula")) add_form(*root_.find("formula"), "formula", false);
    const TomlNode* const forms = root_.find("form");
    if (forms == nullptr) return;
    if (forms->kind != TomlNode::Kind::array)
      root_.fail("form", std::string("got ") + kind_name(forms->kind) + ", want [[form]] for each");
    if (out_.forms.empty()) root_.fail("form", "got further forms without the formula of the op");
    for (const TomlEntry& entry : forms->entries) {
      const TomlSection section(file_, entry.value, "form", {"name", "formula", "one_pass"});
      required(file_, section, "formula", "the formula");
      add_form(*section.find("formula"), section.text("name").value_or("form " + std::to_string(out_.forms.size() + 1)),
               section.flag("one_pass"));
    }
  }

  /// Sets a flag of outputs ("y") and of gradients of inputs ("dx").
  void mark(const std::vector<std::string>& names, std::uint32_t flag, TomlPlace place, const char* what) {
    for (const std::string& name : names) {
      bool found = false;
      for (ac_output& output : out_.outputs)
        if (name == output.name) {
          output.flags |= flag;
          found = true;
        }
      for (ac_input& input : out_.inputs)
        if (name == gradient_name(input.name)) {
          input.flags |= flag;
          found = true;
        }
      if (!found)
        file_.fail(place, std::string(what) + ", got '" + name + "', want an output or the gradient of an input");
    }
  }

  void read_rows() {
    const TomlNode* const node = root_.find("rows");
    if (node == nullptr) return;
    const TomlSection section(file_, *node, "rows", {"dim", "of", "batch_invariant"});
    note("row_dim", node->place, nullptr);
    out_.op.row_dim = out_.keep(required(file_, section, "dim", "the symbol of the rows"));
    mark(section.texts("of"), AC_ROW_INDEPENDENT, section.place("of"), "rows");
    if (section.flag("batch_invariant")) out_.op.flags |= AC_OP_BATCH_INVARIANT;
  }

  void read_accumulates() {
    mark(root_.texts("accumulates"), AC_ACCUMULATES, root_.place("accumulates"), "accumulates");
  }

  /// What the arguments of backward say of tensors: an output that backward reads; a gradient that has no pointer of
  /// its own and stands where a cotangent stood, which then is no pointer to const.
  void read_backward_tensors() {
    const TomlNode* const node = root_.find("backward");
    if (node == nullptr || node->kind != TomlNode::Kind::table) return;
    std::map<std::string, bool> pointers;  // name -> whether it may be written through
    const auto see = [&](const TomlNode& step) {
      const TomlNode* const list = entry_of(step, "arguments");
      if (list == nullptr) return;
      for (const TomlEntry& entry : list->entries)
        if (const auto star = entry.value.text.rfind('*'); star != std::string::npos)
          pointers[trimmed(entry.value.text.substr(star + 1))] |= entry.value.text.find("const") > star;
    };
    see(*node);
    if (const TomlNode* const then = entry_of(*node, "then"))
      for (const TomlEntry& step : then->entries) see(step.value);
    for (ac_output& output : out_.outputs)
      if (pointers.contains(output.name)) output.flags |= AC_TO_BACKWARD;
    std::vector<ac_input*> homeless;
    for (ac_input& input : out_.inputs)
      if (has_gradient(input) && !pointers.contains(gradient_name(input.name))) homeless.push_back(&input);
    std::vector<std::int32_t> writable;
    for (std::size_t i = 0; i < out_.outputs.size(); ++i)
      if (const auto found = pointers.find(gradient_name(out_.outputs[i].name));
          found != pointers.end() && found->second)
        writable.push_back(static_cast<std::int32_t>(i) + 1);
    if (homeless.size() == 1 && writable.size() == 1) homeless[0]->gradient_over = writable[0];
  }

  static bool has_gradient(const ac_input& input) {
    const bool whole = input.type == AC_TYPE_I64 || input.type == AC_TYPE_U8;
    return !whole && (input.flags & AC_NO_GRADIENT) == 0;
  }

  static const TomlNode* entry_of(const TomlNode& table, const std::string& key) {
    for (const TomlEntry& entry : table.entries)
      if (entry.key == key) return &entry.value;
    return nullptr;
  }

  static std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
  }

  void assemble() {
    ac_op& op = out_.op;
    const auto count = [](const auto& list) { return static_cast<std::int32_t>(list.size()); };
    op.struct_size = sizeof op;
    op.name = out_.keep(required(file_, root_, "name", "the name of the op"));
    op.summary = out_.keep(root_.text("summary").value_or(""));
    if (op.devices == 0) op.devices = AC_ON_CPU;
    op.inputs = out_.inputs.data();
    op.input_count = count(out_.inputs);
    op.outputs = out_.outputs.data();
    op.output_count = count(out_.outputs);
    op.saved = out_.saved.data();
    op.saved_count = count(out_.saved);
    op.attributes = out_.attributes.data();
    op.attribute_count = count(out_.attributes);
    op.dims = out_.dims.data();
    op.dim_count = count(out_.dims);
    op.forms = out_.forms.data();
    op.form_count = count(out_.forms);
    out_.contract.storage = out_.storage.data();
    out_.contract.storage_count = count(out_.storage);
    op.contract = &out_.contract;
    op.forward = &run_forward;
    op.backward = &run_backward;
    op.user = &out_;
    if (const TomlNode* const second = root_.find("double_backward")) {
      note("double_backward", root_.place("double_backward"), second);
      out_.second = {sizeof out_.second, 0, &run_double_backward};
      out_.extension = {sizeof out_.extension, AC_EXTENSION_REQUIRED, AC_DOUBLE_BACKWARD, &out_.second};
      op.extensions = &out_.extension;
      op.extension_count = 1;
    }
    out_.plugin = {sizeof(ac_plugin), AMPCHECK_OP_ABI, op.name, nullptr, 1, 0, &op};
  }

  std::vector<OpDef> definition() const {
    try {
      return ops_of(&out_.plugin, std::filesystem::path(file_.path()).filename().string());
    } catch (const PluginError& error) {
      fail_at_part(error.what());
    }
  }

  /// "[op: op 1 'name', input 2 'weight'] dims, got ..." with the place in the file instead.
  [[noreturn]] void fail_at_part(const std::string& message) const {
    for (const auto& [words, node] : formulas_)
      if (message.find(words + "] [formula] line ") != std::string::npos) fail_in_formula(message, words, *node);
    const auto is_in = [&](const std::string& words) {
      const std::size_t at = message.find(words);
      const std::size_t end = at + words.size();
      return at != std::string::npos && end < message.size() && !(message[end] >= '0' && message[end] <= '9');
    };
    const Part* part = nullptr;
    for (const Part& known : parts_)
      if (is_in(known.words)) part = &known;
    std::size_t start = message.find("] ");
    start = start == std::string::npos ? 0 : start + 2;
    const std::string what = in_toml_words(message.substr(start)), key = what.substr(0, what.find_first_of(", "));
    if (part == nullptr) file_.fail(root_.place(key), what);
    if (part->node != nullptr)
      for (const TomlEntry& entry : part->node->entries)
        if (entry.key == key) file_.fail(entry.value.place, what);
    file_.fail(part->place, what);
  }

  /// The names of the C door as this one spells them: AC_TYPE_U8 is "u8".
  static std::string in_toml_words(std::string text) {
    for (const std::string_view head : {"AC_TYPE_", "AC_"})
      for (std::size_t at = text.find(head); at != std::string::npos; at = text.find(head, at)) {
        std::size_t end = at + head.size();
        while (end < text.size() &&
               ((text[end] >= 'A' && text[end] <= 'Z') || text[end] == '_' || (text[end] >= '0' && text[end] <= '9')))
          ++end;
        std::string word = text.substr(at + head.size(), end - at - head.size());
        std::transform(word.begin(), word.end(), word.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
        text.replace(at, end - at, "\"" + word + "\"");
      }
    return text;
  }

  /// The place of an error of a formula in the file: exact for strings of several lines and for plain ones without
  /// escapes.
  [[noreturn]] void fail_in_formula(const std::string& message, const std::string& words, const TomlNode& node) const {
    const std::string head = words + "] [formula] line ";
    std::size_t at = message.find(head) + head.size();
    int line = 0, column = 0;
    const auto read = [&] {
      int value = 0;
      for (; at < message.size() && message[at] >= '0' && message[at] <= '9'; ++at)
        value = std::min(10 * value + (message[at] - '0'), 1 << 24);
      return value;
    };
    line = read();
    at += std::string_view(", column ").size();
    column = read();
    const std::string_view source = file_.rest_of_line(node.place);
    const bool several = source.starts_with("\"\"\"") || source.starts_with("'''");
    const bool begins_below = several && source.find_first_not_of(" \t\r", 3) == std::string_view::npos;
    TomlPlace place = node.place;
    place.line += line - 1 + (begins_below ? 1 : 0);
    if (line > 1 || begins_below)
      place.column = column;
    else
      place.column += column - 1 + (several ? 3 : 1);
    const std::size_t excerpt = std::min(message.find('\n', at), message.size());
    file_.fail(place, "formula" + message.substr(at, excerpt - at), message.substr(excerpt));
  }

  inline static const std::vector<std::string> kTypes = {"storage", "parameter", "fp32",   "i64", "u8",
                                                         "fp16",    "bf16",      "e4m3fn", "e5m2"};

  TomlFile file_;
  LauncherOp& out_;
  TomlSection root_;
  std::vector<Part> parts_;
  std::vector<std::pair<std::string, const TomlNode*>> formulas_;
};

}  // namespace

std::string kernel_named_in(const std::string& text, const std::string& path) {
  try {
    const TomlFile file(text, path);
    for (const TomlEntry& entry : file.root().entries)
      if (entry.key == "library" && entry.value.kind == TomlNode::Kind::text) return kernel_in(entry.value.text, path);
  } catch (const TomlError&) {  // whoever reads the op says it
  }
  return "";
}

TomlOp op_of_toml(const std::string& text, const std::string& path, const std::string& kernel_file) {
  const auto held = std::make_shared<LauncherOp>();
  held->kernel_file = kernel_file;
  try {
    TomlOp out = Reader(TomlFile(text, path), *held).read();
    // The kernels point into `held`.
    for (OpDef* op : {&out.op, out.backward_op ? &*out.backward_op : nullptr})
      for (kernels::KernelFn* kernel :
           op == nullptr ? std::vector<kernels::KernelFn*>() : std::vector{&op->kernel.forward, &op->kernel.backward})
        *kernel = [held, inner = std::move(*kernel)](const kernels::KernelCall& call) { inner(call); };
    out.resolve = [held, path] {
      try {
        held->forward->resolve();
        if (held->backward) held->backward->resolve();
        if (held->double_backward) held->double_backward->resolve();
      } catch (const EnvironmentError&) {
        throw;
      } catch (const Error& error) {
        throw PluginError("[" + path + "] " + error.what());
      }
    };
    return out;
  } catch (const TomlError& error) {
    throw PluginError(error.what());
  }
}

}  // namespace ampcheck::checks
