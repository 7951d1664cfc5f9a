// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/toml_launchers.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checks/define/second_order.h"
#include "checks/doors/plugin_kernel.h"
#include "checks/doors/ptx_launcher.h"

namespace ampcheck::checks {

namespace {

class LauncherReader {
 public:
  LauncherReader(const TomlFile& file, const TomlSection& root, LauncherOp& out)
      : file_(file), root_(root), out_(out) {}

  void read(const OpSignature& signature) {
    name_tensors(signature);
    if (out_.kernel_file.empty()) {
      want_kernel();
      std::filesystem::path library = required(file_, root_, "library", "the shared library that has the launchers");
      if (library.is_relative()) library = std::filesystem::path(file_.path()).parent_path() / library;
      if (!library.has_parent_path()) library = "." / library;  // dlopen searches the system for a name without a slash
      library_ = std::make_shared<LauncherLibrary>(library.string());
    } else {
      module_ = std::make_shared<PtxModule>(out_.kernel_file, root_.texts("nvcc"));
    }
    const bool differentiable = std::any_of(signature.inputs.begin(), signature.inputs.end(),
                                            [](const TensorSpec& s) { return s.has_gradient(); });
    out_.forward = launcher("forward", signature, out_.forward_names);
    if (differentiable || root_.find("backward") != nullptr)
      out_.backward = launcher("backward", signature, out_.backward_names);
    if (root_.find("double_backward") != nullptr)
      out_.double_backward = launcher("double_backward", signature, out_.double_backward_names);
  }

 private:
  /// A file that says how a kernel is launched, and no kernel beside it.
  void want_kernel() const {
    if (root_.find("library") != nullptr) return;
    const TomlNode* const forward = root_.find("forward");
    if (forward == nullptr || forward->kind != TomlNode::Kind::table) return;
    for (const TomlEntry& entry : forward->entries)
      if (entry.key == "kernel" || entry.key == "grid" || entry.key == "block")
        file_.fail(entry.place,
                   "got the launch of a GPU kernel and no kernel, want its file first: KERNEL.cu --launch " +
                       std::filesystem::path(file_.path()).filename().string() +
                       ", or library = \"KERNEL.cu\" in this file");
  }

  void name_tensors(const OpSignature& signature) {
    using List = TensorSlot::List;
    ArgumentNames both;
    for (std::size_t i = 0; i < signature.attributes.size(); ++i)
      both.attributes[signature.attributes[i].name] = static_cast<std::int32_t>(i);
    for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
      const TensorSpec& spec = signature.inputs[i];
      const TensorSlot slot = {List::inputs, static_cast<std::int32_t>(i)};
      both.tensors[spec.name] = slot;
      const std::vector<std::string> symbols = OpSignature::symbols(spec);
      for (std::size_t axis = 0; axis < symbols.size(); ++axis)
        both.dims[symbols[axis]].emplace_back(slot, static_cast<int>(axis));
    }
    for (std::size_t i = 0; i < signature.saved.size(); ++i)
      both.tensors[signature.saved[i].name] = {List::saved, static_cast<std::int32_t>(i)};
    read_codes(signature, both);
    read_facts(signature, both);
    out_.forward_names = out_.backward_names = both;
    for (const OutputSpec& saved : signature.saved) out_.forward_names.facts[saved.name].written = true;
    for (const OutputSpec& output : signature.outputs) {
      out_.forward_names.facts[output.name] = {dtypes_of(output.type, signature), true, false};
      if (output.takes_cotangent)
        out_.backward_names.facts[gradient_name(output.name)] = {dtypes_of(output.type, signature), false, false};
    }
    for (const TensorSpec& input : signature.inputs)
      if (input.has_gradient())
        out_.backward_names.facts[gradient_name(input.name)] = {dtypes_of(input.type, signature), true, false};
    for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
      out_.forward_names.tensors[signature.outputs[i].name] = {List::outputs, static_cast<std::int32_t>(i)};
      if (signature.outputs[i].takes_cotangent)
        out_.backward_names.tensors[gradient_name(signature.outputs[i].name)] = {List::cotangents,
                                                                                 static_cast<std::int32_t>(i)};
    }
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].has_gradient())
        out_.backward_names.tensors[gradient_name(signature.inputs[i].name)] = {List::gradients,
                                                                                static_cast<std::int32_t>(i)};
    for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
      const OutputSpec& output = signature.outputs[i];
      if (!output.to_backward) continue;
      out_.backward_names.facts[output.name] = {dtypes_of(output.type, signature), false, false};
      out_.backward_names.tensors[output.name] = {List::outputs, static_cast<std::int32_t>(i)};
    }
    name_double_backward(signature);
  }

  void name_double_backward(const OpSignature& signature) {
    using List = TensorSlot::List;
    out_.double_backward_names = out_.backward_names;
    for (const TensorSpec& input : signature.inputs)
      if (input.has_gradient())
        out_.double_backward_names.facts[gradient_name(gradient_as_output(input.name))] = {
            dtypes_of(input.type, signature), false, false};
    for (const OutputSpec& output : signature.outputs)
      if (output.takes_cotangent)
        out_.double_backward_names.facts[gradient_name(gradient_name(output.name))] = {
            dtypes_of(output.type, signature), true, false};
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].has_gradient())
        out_.double_backward_names.tensors[gradient_name(gradient_as_output(signature.inputs[i].name))] = {
            List::gradient_cotangents, static_cast<std::int32_t>(i)};
    for (std::size_t i = 0; i < signature.outputs.size(); ++i)
      if (signature.outputs[i].takes_cotangent)
        out_.double_backward_names.tensors[gradient_name(gradient_name(signature.outputs[i].name))] = {
            List::cotangent_gradients, static_cast<std::int32_t>(i)};
  }

  /// The dtypes that a tensor of this type has in some case.
  static std::vector<std::int32_t> dtypes_of(TypeRule type, const OpSignature& signature) {
    std::vector<std::int32_t> out;
    if (type == TypeRule::parameter) out.push_back(AC_FP32);
    for (const Dtype storage : signature.precision.storage)
      if (const int dtype = ac_dtype_of(dtype_of(type, storage)); std::find(out.begin(), out.end(), dtype) == out.end())
        out.push_back(dtype);
    return out;
  }

  static void read_facts(const OpSignature& signature, ArgumentNames& names) {
    for (const TensorSpec& spec : signature.inputs)
      names.facts[spec.name] = {dtypes_of(spec.type, signature), false, spec.role == Role::mask};
    for (const OutputSpec& spec : signature.saved)
      names.facts[spec.name] = {dtypes_of(spec.type, signature), false, false};
  }

  void read_codes(const OpSignature& signature, ArgumentNames& names) {
    if (root_.find("dtypes") == nullptr) return;
    const std::vector<std::string> types = {"fp64", "fp32", "fp16", "bf16", "e4m3fn",
                                            "e5m2", "i32",  "i64",  "u8"};  // from AC_FP64 = 1
    const TomlSection section(file_, *root_.find("dtypes"), "dtypes", types);
    for (std::size_t i = 0; i < types.size(); ++i)
      if (const auto code = section.integer(types[i]))
        names.dtype_codes[static_cast<std::int32_t>(i) + AC_FP64] = *code;
    for (const Dtype storage : signature.precision.storage)
      if (section.find(ampcheck::name(storage)) == nullptr)
        file_.fail(root_.place("dtypes"), std::string("dtypes, got no code for ") + ampcheck::name(storage) +
                                              ", want one for each storage type");
  }

  std::unique_ptr<OpLauncher> launcher(const char* pass, const OpSignature& signature, ArgumentNames& names) {
    if (root_.find(pass) == nullptr) {
      const bool backward = std::string_view(pass) == "backward";
      file_.fail({}, std::string(pass) + ", got none, want a table [" + pass + "] with " +
                         (module_ == nullptr ? "symbol" : "kernel") + " and arguments" +
                         (backward ? " (or gradient = false for every input)" : ""));
    }
    if (module_ != nullptr) return kernel(pass, signature, names);
    LauncherDescription out;
    out.library = library_;
    each_step(pass, {"symbol", "arguments", "returns"}, names, out, [&](const TomlSection& section) {
      LauncherStep& step = out.steps.emplace_back();
      read_symbols(section, "symbol", signature, step);
      step.returns_status = section.choice("returns", {"void", "status"}).value_or(0) == 1;
      read_arguments(section, names, step);
    });
    require_written(pass, signature, names, out.steps);
    return std::make_unique<Launcher>(std::move(out), names);
  }

  /// Reads the workspaces of a pass, then calls read(section) for the table of the pass and for each entry of its
  /// "then": what is called behind it, with the same workspaces.
  template <class F>
  void each_step(const char* pass, std::vector<std::string> keys, ArgumentNames& names, LauncherDescription& out,
                 F read) const {
    const std::vector<std::string> of_step = keys;
    for (const char* key : {"workspace", "workspaces", "then"}) keys.emplace_back(key);
    const TomlSection first(file_, *root_.find(pass), pass, keys);
    read_workspaces(first, names, out);
    read(first);
    const TomlNode* const then = first.find("then");
    if (then == nullptr) return;
    if (then->kind != TomlNode::Kind::array || then->entries.empty())
      first.fail("then", std::string("got ") + (then->kind == TomlNode::Kind::array ? "none" : kind_name(then->kind)) +
                             ", want [[" + pass + ".then]] for each launch that follows");
    for (const TomlEntry& entry : then->entries)
      read(TomlSection(file_, entry.value, std::string(pass) + ".then", of_step));
  }

  void read_workspaces(const TomlSection& section, ArgumentNames& names, LauncherDescription& out) const {
    const auto add = [&](const std::string& name, const TomlNode& node, TomlPlace at) {
      const bool known = names.tensors.contains(name) || names.dims.contains(name) || names.attributes.contains(name) ||
                         names.workspaces.contains(name);
      if (known || name == "stream" || name == "null")
        file_.fail(at, "workspaces, got '" + name + "', which " +
                           (known ? "names something else here" : "is a word of its own") + ", want another name");
      LauncherWorkspace made{name, {}, false};
      const auto read_size = [&](const TomlNode& text) {
        return argument(text.place, [&] { return ArgumentValue::parse(text.text, names); });
      };
      if (node.kind == TomlNode::Kind::text) {
        made.bytes = read_size(node);
      } else {
        const TomlSection table(file_, node, "workspace '" + name + "'", {"bytes", "zeroed"});
        required(file_, table, "bytes", "its size, such as \"4 * N\"");
        made.bytes = read_size(*table.find("bytes"));
        made.zeroed = table.flag("zeroed");
      }
      out.workspaces.push_back(std::move(made));
    };
    if (const TomlNode* const one = section.find("workspace")) add("workspace", *one, one->place);
    if (const TomlNode* const several = section.find("workspaces")) {
      if (several->kind != TomlNode::Kind::table)
        section.fail("workspaces",
                     std::string("got ") + kind_name(several->kind) + ", want a table such as { partial = \"4 * N\" }");
      for (const TomlEntry& entry : several->entries) add(entry.key, entry.value, entry.place);
    }
    // Named once all sizes are read: none follows from another's.
    for (std::size_t k = 0; k < out.workspaces.size(); ++k)
      if (!names.workspaces.emplace(out.workspaces[k].name, static_cast<std::int32_t>(k)).second)
        section.fail("workspaces", "got two of the name '" + out.workspaces[k].name + "'");
  }

  void read_arguments(const TomlSection& section, const ArgumentNames& names, LauncherStep& out) const {
    const TomlNode* const list = section.find("arguments");
    if (list == nullptr)
      file_.fail(section.place(), "arguments, got none, want an array of C parameters such as \"const void* x\"");
    const std::vector<std::string> texts = section.texts("arguments");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const TomlPlace place = list->entries[i].value.place;
      out.arguments.push_back(argument(place, [&] { return LauncherArgument::parse(texts[i], names); }));
    }
  }

  /// A pass of a kernel that device ptx runs: how it is launched stands beside its arguments.
  std::unique_ptr<OpLauncher> kernel(const char* pass, const OpSignature& signature, ArgumentNames& names) {
    PtxLaunchDescription out;
    out.module = module_;
    each_step(pass, {"kernel", "arguments", "grid", "block", "shared"}, names, out.call,
              [&](const TomlSection& section) {
                LauncherStep& step = out.call.steps.emplace_back();
                read_symbols(section, "kernel", signature, step);
                read_arguments(section, names, step);
                out.extents.push_back(extents_of(section, names));
              });
    require_written(pass, signature, names, out.call.steps);
    for (const std::string& tensor : signature.launch.accumulates) out.accumulates.push_back(tensor);
    return std::make_unique<PtxLauncher>(std::move(out), names);
  }

  PtxExtents extents_of(const TomlSection& section, const ArgumentNames& names) const {
    PtxExtents out;
    const auto extents = [&](const char* key, std::array<ArgumentValue, 3>& to) {
      const TomlNode* const node = section.find(key);
      if (node == nullptr)
        file_.fail(section.place(), std::string(key) + ", got none, want such as " + key +
                                        (key == std::string("grid") ? " = [\"N\"]" : " = [256]") +
                                        ": the numbers between <<< and >>>");
      std::vector<const TomlNode*> parts;
      if (node->kind == TomlNode::Kind::array)
        for (const TomlEntry& entry : node->entries) parts.push_back(&entry.value);
      else
        parts.push_back(node);
      if (parts.empty() || parts.size() > 3)
        file_.fail(node->place, std::string(key) + ", got " + std::to_string(parts.size()) + " extents, want 1 to 3");
      for (std::size_t i = 0; i < 3; ++i)
        to[i] = i < parts.size() ? extent(*parts[i], names) : ArgumentValue::parse("1", names);
    };
    extents("grid", out.grid);
    extents("block", out.block);
    if (const TomlNode* const shared = section.find("shared")) out.shared = extent(*shared, names);
    return out;
  }

  ArgumentValue extent(const TomlNode& node, const ArgumentNames& names) const {
    if (node.kind == TomlNode::Kind::integer) return ArgumentValue::parse(std::to_string(node.integer), names);
    if (node.kind != TomlNode::Kind::text)
      file_.fail(node.place, std::string("extent, got ") + kind_name(node.kind) +
                                 ", want a number or a text such as \"(D + 255) / 256\"");
    return argument(node.place, [&] { return ArgumentValue::parse(node.text, names); });
  }

  /// A result that no argument passes would be judged as the garbage that its memory holds.
  void require_written(const std::string& pass, const OpSignature& signature, const ArgumentNames& names,
                       const std::vector<LauncherStep>& steps) const {
    TomlPlace place = root_.find(pass)->place;
    for (const TomlEntry& entry : root_.find(pass)->entries)
      if (entry.key == "arguments") place = entry.place;
    const auto passes = [&](const std::string& tensor) {
      const auto passed = [&](const LauncherArgument& argument) { return argument.passes(names.tensors.at(tensor)); };
      return std::any_of(steps.begin(), steps.end(), [&](const LauncherStep& step) {
        return std::any_of(step.arguments.begin(), step.arguments.end(), passed);
      });
    };
    for (const auto& [tensor, facts] : names.facts) {
      const bool over_input =
          std::any_of(signature.launch.in_place.begin(), signature.launch.in_place.end(),
                      [&, name = tensor](const auto& pair) { return pair.first == name && passes(pair.second); });
      if (!facts.written || passes(tensor) || over_input) continue;
      const auto of =
          std::find_if(signature.inputs.begin(), signature.inputs.end(),
                       [&, name = tensor](const TensorSpec& input) { return gradient_name(input.name) == name; });
      file_.fail(place, "arguments of [" + pass + "], got no '" + tensor + "', want such as \"void* " + tensor + "\"" +
                            (pass == "forward" || of == signature.inputs.end()
                                 ? ""
                                 : ", or gradient = false for the input '" + of->name + "'"));
    }
  }

  /// What `parse` returns; an ArgumentError with its place in the file (exact for strings without escapes).
  template <class F>
  auto argument(TomlPlace place, F parse) const -> decltype(parse()) {
    try {
      return parse();
    } catch (const ArgumentError& error) {
      place.column += 1 + static_cast<int>(error.at);
      file_.fail(place, std::string("argument, ") + error.what());
    }
  }

  void read_symbols(const TomlSection& section, const char* key, const OpSignature& signature,
                    LauncherStep& out) const {
    const TomlNode* const symbol = section.find(key);
    if (symbol == nullptr)
      file_.fail(section.place(), std::string(key) + ", got none, want its name, or { fp32 = \"f\", bf16 = \"g\" }");
    if (symbol->kind == TomlNode::Kind::text) {
      out.symbols[0] = *section.text(key);
      return;
    }
    const TomlSection symbols(file_, *symbol, key, kLauncherFloats);
    for (const Dtype storage : signature.precision.storage) {
      const auto name = symbols.text(ampcheck::name(storage));
      if (!name)
        file_.fail(symbol->place,
                   std::string(key) + ", got none for " + ampcheck::name(storage) + ", want one for each storage type");
      out.symbols[ac_dtype_of(storage)] = *name;
    }
  }

  const TomlFile& file_;
  const TomlSection& root_;
  LauncherOp& out_;
  std::shared_ptr<LauncherLibrary> library_;
  std::shared_ptr<PtxModule> module_;
};

}  // namespace

std::string required(const TomlFile& file, const TomlSection& section, const char* key, const char* want) {
  if (const auto text = section.text(key)) return *text;
  file.fail(section.place(), std::string(key) + ", got none, want " + want);
}

bool is_kernel_file(std::string_view path) { return path.ends_with(".ptx") || path.ends_with(".cu"); }

void read_launchers(const TomlFile& file, const TomlSection& root, const OpSignature& signature, LauncherOp& out) {
  LauncherReader(file, root, out).read(signature);
}

}  // namespace ampcheck::checks
