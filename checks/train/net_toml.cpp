// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/net_toml.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "checks/doors/plugin.h"
#include "checks/models/bound_call.h"
#include "checks/models/layers.h"
#include "checks/models/real_data.h"
#include "src/amp/autocast.h"
#include "src/amp/grad_mode.h"
#include "src/random.h"
#include "src/suggestion.h"

namespace ampcheck::checks::train {

namespace {

using namespace models;

const std::vector<std::string> kTypes = {"op",         "linear",   "conv2d",  "embedding",  "attention",
                                         "layer_norm", "rms_norm", "add",     "mul",        "max_pool2d",
                                         "flatten",    "relu",     "gelu",    "gelu_tanh",  "silu",
                                         "sigmoid",    "tanh",     "softmax", "log_softmax"};
constexpr int kWithWeights = 7, kFirstUnary = 11;  // the first of kTypes have weights, the last are ops of one input
constexpr std::int64_t kTime = 16;                 // characters of a passage
constexpr std::int64_t kMostExtent = 1 << 20;

struct Layer {
  int kind = 0;  ///< in kTypes
  std::string name, of, from;
  std::int64_t outputs = 0, heads = 1;
  std::optional<Dtype> autocast, cast_inputs;  ///< autocast: of a region of its own; fp32: off
  bool no_grad = false;
  std::optional<int> recompute;  ///< for the backward: 0 as in the forward, 1 without autocast
  const OpDef* op = nullptr;     ///< of type op
  std::vector<std::pair<std::string, double>> attributes;
  TomlPlace place;
  const std::string& type() const { return kTypes[static_cast<std::size_t>(kind)]; }
};

std::int64_t positive(const TomlSection& section, const char* key, std::int64_t otherwise) {
  const std::optional<std::int64_t> value = section.integer(key);
  if (value && (*value < 1 || *value > kMostExtent))
    section.fail(key,
                 "got " + std::to_string(*value) + ", want a whole number from 1 to " + std::to_string(kMostExtent));
  return value.value_or(otherwise);
}

/// A key of some types alone.
void require_type(const TomlSection& section, const char* key, const Layer& layer,
                  std::initializer_list<const char*> types) {
  if (section.find(key) == nullptr || std::find(types.begin(), types.end(), layer.type()) != types.end()) return;
  std::string list;
  for (const char* type : types) list += (list.empty() ? "" : ", ") + std::string(type);
  section.fail(key, "got it in a layer of type " + layer.type() + ", want it in " + list + " alone");
}

std::optional<Dtype> read_dtype(const TomlSection& section, const char* key, const char* fp32) {
  const std::optional<int> chosen = section.choice(key, {fp32, "fp16", "bf16"});
  constexpr Dtype kDtypes[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  return chosen ? std::optional(kDtypes[*chosen]) : std::nullopt;
}

/// The user's op of a layer: from a library, or a built-in one.
const OpDef& read_op(const TomlFile& file, const TomlSection& section) {
  const std::optional<std::string> name = section.text("op"), library = section.text("library");
  if (!library) {
    if (!name) section.fail("op", "got neither it nor a library, want the name of an op");
    if (const OpDef* const op = find_op(*name)) return *op;
    std::vector<std::string> names;
    for (const OpDef& op : all_ops()) names.push_back(op.signature.name);
    section.fail("op",
                 "got '" + *name + "'" + did_you_mean(*name, names) + ", want a built-in op, or a library with it");
  }
  std::filesystem::path path = *library;
  if (path.is_relative()) path = std::filesystem::path(file.path()).parent_path() / path;
  if (!path.has_parent_path()) path = "." / path;  // a bare name would be searched for in the system
  const Plugin& plugin = load_plugin(path.string());
  std::string list;
  for (const OpDef& op : plugin.ops) {
    if (name ? op.signature.name == *name : plugin.ops.size() == 1) {
      use_op(op);
      return op;
    }
    list += (list.empty() ? "" : ", ") + op.signature.name;
  }
  section.fail("op", "got " + (name ? "'" + *name + "'" : std::string("none")) + ", want one of " + list +
                         ", which the library has");
}

std::vector<std::pair<std::string, double>> read_attributes(const TomlFile& file, const TomlSection& section,
                                                            const OpSignature& signature) {
  const TomlNode* const node = section.find("attributes");
  if (node == nullptr) return {};
  if (node->kind != TomlNode::Kind::table)
    section.fail("attributes", "got another kind of value, want { name = number }");
  std::vector<std::string> names;
  for (const AttributeSpec& a : signature.attributes) names.push_back(a.name);
  const TomlSection values(file, *node, "attributes", names);
  std::vector<std::pair<std::string, double>> out;
  for (const std::string& name : names)
    if (const std::optional<double> value = values.number(name)) out.emplace_back(name, *value);
  return out;
}

Layer read_layer(const TomlFile& file, const TomlNode& node, const std::vector<Layer>& before) {
  const TomlSection section(file, node, "layer",
                            {"type", "name", "outputs", "heads", "of", "op", "library", "attributes", "cast_inputs",
                             "autocast", "no_grad", "recompute", "from"});
  Layer layer;
  layer.place = node.place;
  const std::optional<int> kind = section.choice("type", kTypes);
  if (!kind) section.fail("type", "got a layer without it, want one");
  layer.kind = *kind;
  require_type(section, "outputs", layer, {"linear", "conv2d", "embedding", "op"});
  for (const char* const key : {"op", "library", "attributes", "cast_inputs"})
    require_type(section, key, layer, {"op"});
  layer.autocast = read_dtype(section, "autocast", "off");
  layer.no_grad = section.flag("no_grad");
  layer.recompute = section.choice("recompute", {"same", "without_autocast"});
  if (layer.type() == "op") {
    layer.op = &read_op(file, section);
    layer.attributes = read_attributes(file, section, layer.op->signature);
    layer.cast_inputs = read_dtype(section, "cast_inputs", "fp32");
  }
  require_type(section, "heads", layer, {"attention"});
  require_type(section, "of", layer, {"add", "mul"});
  layer.outputs = positive(section, "outputs", 0);
  layer.heads = positive(section, "heads", 1);
  if (layer.outputs == 0 && (layer.type() == "conv2d" || layer.type() == "embedding"))
    section.fail("outputs", "got a " + layer.type() + " without it, want a number");
  if (layer.kind < kWithWeights)
    layer.name = "layer" + std::to_string(std::count_if(before.begin(), before.end(),
                                                        [](const Layer& l) { return l.kind < kWithWeights; }));
  layer.name = section.text("name").value_or(layer.name);
  if (layer.name.find('.') != std::string::npos)
    section.fail("name",
                 "got '" + layer.name + "', want one without a dot: what follows it names a layer's own weights");
  if (std::any_of(layer.name.begin(), layer.name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    section.fail("name", "got a control character, want one line of text");
  std::vector<std::string> names;
  for (const Layer& l : before)
    if (!l.name.empty()) names.push_back(l.name);
  if (!layer.name.empty() && std::find(names.begin(), names.end(), layer.name) != names.end())
    section.fail("name", "got '" + layer.name + "' again, want another name for each layer");
  if (section.find("from") != nullptr && names.empty())
    section.fail("from", "got it where no layer before it has a name, want one before it, with a name");
  if (const std::optional<int> from = section.choice("from", names))
    layer.from = names[static_cast<std::size_t>(*from)];
  if (layer.type() != "add" && layer.type() != "mul") return layer;
  if (names.empty())
    section.fail("of", "got a layer of type " + layer.type() +
                           " where no layer before it has a name, want one before it, with a name");
  const std::optional<int> of = section.choice("of", names);
  if (!of) section.fail("of", "got none, want the name of a layer before");
  layer.of = names[static_cast<std::size_t>(*of)];
  return layer;
}

/// What a batch is made of.
struct Data {
  enum class Kind { digits, text, random } kind = Kind::digits;
  std::shared_ptr<const Digits> digits;
  std::shared_ptr<const Text> text;
  std::int64_t rows = 0, width = 0;
  bool images = false;
  std::vector<LossChoice> losses;
  std::uint64_t seed = 1;
  std::int64_t classes() const {
    return kind == Kind::digits ? kDigitClasses : kind == Kind::text ? text->vocabulary : width;
  }
};

void require_loss(const TomlSection& root, const std::vector<Layer>& layers, const Data& data, const LossChoice& loss) {
  if (data.kind == Data::Kind::text && loss.mse) root.fail("data", "got text with loss mse, want cross_entropy");
  if (data.kind == Data::Kind::random && !loss.mse)
    root.fail("data", "got random with loss " + loss.text + ", want mse");
  std::vector<std::string> names;
  for (const Layer& l : layers)
    if (!l.name.empty()) names.push_back(l.name);
  if (!loss.layer.empty() && std::find(names.begin(), names.end(), loss.layer) == names.end())
    throw Error("[train] loss '" + loss.text + "', got no layer '" + loss.layer + "'" +
                did_you_mean(loss.layer, names) + ", want a layer's name");
}

Data read_data(const TomlSection& root, const std::vector<Layer>& layers, const NetOptions& options,
               const std::string& folder) {
  Data out;
  const int kind = root.choice("data", {"digits", "text", "random"}).value_or(0);
  out.kind = static_cast<Data::Kind>(kind);
  out.seed = options.seed;
  out.losses = read_losses(options.loss);
  if (out.losses.empty()) out.losses.push_back({.mse = out.kind == Data::Kind::random, .text = ""});
  for (const LossChoice& loss : out.losses) require_loss(root, layers, out, loss);
  out.images = layers.front().type() == "conv2d";
  if (out.kind == Data::Kind::digits) out.digits = std::make_shared<const Digits>(read_digits(find_data(folder)));
  if (out.kind == Data::Kind::text) out.text = std::make_shared<const Text>(read_text(find_data(folder)));
  if (out.kind != Data::Kind::random && root.find("width") != nullptr)
    root.fail("width", "got it without data = \"random\", want it with that alone");
  out.width = positive(root, "width", 64);
  constexpr std::int64_t kRows[] = {64, 4, 128};
  out.rows = options.batch > 0 ? options.batch : kRows[kind];
  return out;
}

void require_rank(const Tape& t, Var x, int rank, const char* want) {
  if (t.shape(x).rank != rank) throw Error("input, got " + t.shape(x).str() + ", want " + want);
}

/// The op at x, which is its first input; weights and biases are trained, other inputs that it can do without are not
/// given. As torch's custom_fwd: with cast_inputs, in a region of autocast, its inputs are cast and the region is off
/// inside of it.
Var own_op(Tape& t, const Layer& layer, Var x) {
  const OpSignature& signature = layer.op->signature;
  const CustomForward region(t.device(), layer.cast_inputs);
  const auto cast = [&](Var v) { return t.to(v, region.input_dtype(t.dtype(v))); };
  std::map<std::string, std::int64_t> dims;
  bool uses_outputs = false;
  std::vector<std::pair<std::string, Var>> inputs;
  for (const TensorSpec& spec : signature.inputs) {
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    if (inputs.empty()) {
      if (spec.role != Role::data || std::ssize(symbols) != t.shape(x).rank)
        throw Error("input, got " + t.shape(x).str() + " for '" + spec.name + "', want [" + spec.dims + "] of numbers");
      for (std::size_t i = 0; i < symbols.size(); ++i) dims[symbols[i]] = t.shape(x)[static_cast<int>(i)];
      inputs.emplace_back(spec.name, cast(x));
      continue;
    }
    if (spec.role != Role::weight && spec.role != Role::bias) {
      if (spec.optional) continue;
      throw Error("input '" + spec.name +
                  "', got an op that needs it, want one that needs weights and biases alone besides its first");
    }
    Shape shape;
    shape.rank = static_cast<int>(symbols.size());
    for (int i = 0; i < shape.rank; ++i) {
      const auto [known, is_new] = dims.try_emplace(symbols[static_cast<std::size_t>(i)], layer.outputs);
      uses_outputs |= is_new;
      if (known->second == 0)
        throw Error("'" + known->first + "' of '" + spec.name +
                    "', got a layer without outputs, want outputs = a number");
      shape[i] = known->second;
    }
    const std::string name = layer.name + "." + spec.name;
    const bool matrix = shape.rank > 1 && spec.role == Role::weight;
    inputs.emplace_back(spec.name, cast(matrix ? t.weight(name, shape, shape.count() / shape[0])
                                               : t.constant_start(name, shape, spec.role == Role::weight ? 1 : 0)));
  }
  if (layer.outputs > 0 && !uses_outputs)
    throw Error("outputs, got " + std::to_string(layer.outputs) + ", want none: the input says all extents of " +
                signature.name);
  return t.call(signature.name, inputs, layer.attributes);
}

Var apply_once(Tape& t, const Layer& layer, Var x, const Data& data, const std::map<std::string, Var>& named) {
  const std::string& type = layer.type();
  std::optional<NoGrad> no_grad;
  if (layer.no_grad) no_grad.emplace();
  std::optional<Autocast> region;
  if (layer.autocast) region.emplace(t.device(), autocast_in(*layer.autocast));
  if (layer.autocast == Dtype::fp32 && type != "embedding")
    x = t.to(x, Dtype::fp32);  // as x.float() before a region that is off
  if (type == "op") return own_op(t, layer, x);
  if (type == "embedding") {
    require_rank(t, x, 1, "characters: the first layer, with data = \"text\"");
    return t.call("embedding",
                  {{"weight", t.weight(layer.name + ".weight", {data.classes(), layer.outputs}, 4)}, {"index", x}});
  }
  if (type == "conv2d" || type == "max_pool2d") {
    require_rank(t, x, 4, "images");
    if (type == "max_pool2d" && std::min(t.shape(x).last(1), t.shape(x).last()) < 2)
      throw Error("input, got " + t.shape(x).str() + ", want images of two rows and columns at least");
    return type == "conv2d" ? conv3x3(t, layer.name, x, layer.outputs) : t.call("max_pool2d", {{"x", x}});
  }
  if (type == "flatten") return t.reshape(x, {t.shape(x)[0], t.shape(x).count() / t.shape(x)[0]});
  if (type == "add" || type == "mul") return t.call(type, {{"x", x}, {"y", named.at(layer.of)}});
  if (layer.kind >= kFirstUnary && t.shape(x).rank > 1) return unary(t, type.c_str(), x);
  require_rank(t, x, 2, "[rows, columns] (type = \"flatten\" makes them of images, \"embedding\" of characters)");
  if (type == "linear") return linear(t, layer.name, x, layer.outputs > 0 ? layer.outputs : data.classes());
  if (type == "attention") {
    if (t.shape(x)[0] != data.rows * kTime) throw Error("input, got " + t.shape(x).str() + ", want passages of text");
    return causal_attention(t, layer.name, x, layer.heads, kTime);
  }
  return type == "layer_norm" ? layer_norm(t, layer.name, x) : rms_norm(t, layer.name, x);
}

Var apply(Tape& t, const Layer& layer, Var x, const Data& data, const std::map<std::string, Var>& named) {
  if (!layer.recompute) return apply_once(t, layer, x, data, named);
  return t.recompute([&](bool again) {
    if (!again || *layer.recompute == 0) return apply_once(t, layer, x, data, named);
    const Autocast off(t.device(), {.enabled = false});
    return apply_once(t, layer, t.to(x, Dtype::fp32), data, named);
  });
}

/// What a batch should give.
struct Targets {
  std::vector<double> of_data, pixels;
};

/// Inputs of a batch, with what they should give: classes, or numbers.
Var inputs(Tape& t, const Data& data, const std::string& name, std::int64_t batch, Targets& targets) {
  std::vector<double>& target = targets.of_data;
  if (data.kind == Data::Kind::digits) {
    Digits rows = digits_batch(*data.digits, batch, data.rows);
    target = std::move(rows.classes);
    targets.pixels = rows.pixels;
    return t.data(data.images ? Shape{data.rows, 1, 8, 8} : Shape{data.rows, 64}, std::move(rows.pixels));
  }
  std::vector<double> x;
  if (data.kind == Data::Kind::text) {
    const std::vector<std::int64_t>& tokens = data.text->tokens;
    for (std::int64_t row = 0; row < data.rows; ++row)
      for (std::int64_t i = 0; i < kTime; ++i) {
        const auto at = static_cast<std::size_t>(((batch * data.rows + row) * kTime + i) % (std::ssize(tokens) - 1));
        x.push_back(static_cast<double>(tokens[at]));
        target.push_back(static_cast<double>(tokens[at + 1]));
      }
    const std::int64_t count = std::ssize(x);
    return t.data({count}, std::move(x));
  }
  x.resize(static_cast<std::size_t>(data.rows * data.width));
  target.resize(x.size());
  Random(data.seed, name + "/x" + std::to_string(batch)).normals(0, x);
  Random(data.seed, name + "/y" + std::to_string(batch)).normals(0, target);
  return t.data({data.rows, data.width}, std::move(x));
}

void add_loss(Tape& t, const Data& data, Var y, const LossChoice& loss, const Targets& targets) {
  const std::int64_t rows = data.kind == Data::Kind::text ? data.rows * kTime : data.rows;
  const Shape want{rows, data.classes()}, pixels{rows, 64};
  const bool rebuilds = data.kind == Data::Kind::digits && loss.mse && t.shape(y) == pixels;  // an autoencoder
  if (!rebuilds && !(t.shape(y) == want))
    throw Error("output, got " + t.shape(y).str() + " from " +
                (loss.layer.empty() ? std::string("the last layer") : "layer '" + loss.layer + "'") + ", want " +
                want.str() +
                (data.kind == Data::Kind::digits && loss.mse ? ", or " + pixels.str() + ", the images" : ""));
  if (rebuilds || data.kind == Data::Kind::random)
    t.add_loss(
        t.call("mse_loss", {{"x", y}, {"target", t.data(t.shape(y), rebuilds ? targets.pixels : targets.of_data)}}),
        loss.weight);
  else
    add_class_loss(t, y, targets.of_data, loss);
}

/// What a layer was made with, which checkpoints of a net have in common.
std::string described(const Layer& l) {
  std::string out = " " + l.type() + ":" + l.name + ":" + l.of + ":" + std::to_string(l.outputs) + ":" +
                    std::to_string(l.heads) + (l.no_grad ? ":no_grad" : "") + (l.from.empty() ? "" : ":from=" + l.from);
  if (l.recompute) out += *l.recompute == 0 ? ":recompute" : ":recompute=without_autocast";
  if (l.autocast) out += std::string(":autocast=") + ampcheck::name(*l.autocast);
  if (l.op == nullptr) return out;
  out += ":" + l.op->signature.name;
  if (l.cast_inputs) out += std::string(":cast_inputs=") + ampcheck::name(*l.cast_inputs);
  for (const auto& [key, value] : l.attributes) out += ":" + key + "=" + number_text(value);
  return out;
}

std::string list_of(const std::vector<LossChoice>& losses) {
  std::string out;
  for (const LossChoice& loss : losses)
    out += (out.empty() ? "" : ",") + (!loss.text.empty() ? loss.text : loss.mse ? "mse" : "cross_entropy");
  return out;
}

}  // namespace

Net read_net(const TomlFile& file, const NetOptions& options, const std::string& folder) {
  const TomlSection root(file, file.root(), "net", {"name", "data", "width", "layers", "train"});
  const TomlNode* const list = root.find("layers");
  if (list == nullptr || list->kind != TomlNode::Kind::array || list->entries.empty())
    root.fail("layers", "got none, want tables [[layers]]");
  std::vector<Layer> layers;
  for (const TomlEntry& entry : list->entries) layers.push_back(read_layer(file, entry.value, layers));
  Net net;
  net.name = root.text("name").value_or("net");
  const Data data = read_data(root, layers, options, folder);
  net.settings = "loss " + list_of(data.losses) + " batch " + std::to_string(data.rows);
  for (std::size_t k = 0; data.losses.size() > 1 && k < data.losses.size(); ++k)
    net.losses.push_back(data.losses[k].text);
  net.layers = std::to_string(static_cast<int>(data.kind)) + "," + std::to_string(data.width);
  for (const Layer& l : layers) {
    net.layers += described(l);
    if (l.op == nullptr) continue;
    if (!l.op->plugin.empty() && std::find(net.own_ops.begin(), net.own_ops.end(), l.op) == net.own_ops.end())
      net.own_ops.push_back(l.op);
  }
  net.forward = [=, path = file.path(), name = net.name](Tape& t, std::int64_t batch) {
    Targets targets;
    Var x = inputs(t, data, name, batch, targets);
    std::map<std::string, Var> named;
    const Layer* at = nullptr;
    try {
      for (const Layer& layer : layers) {
        at = &layer;
        if (!layer.from.empty()) x = named.at(layer.from);
        x = apply(t, layer, x, data, named);
        if (!layer.name.empty()) named[layer.name] = x;
      }
      for (const LossChoice& loss : data.losses)
        add_loss(t, data, loss.layer.empty() ? x : named.at(loss.layer), loss, targets);
    } catch (const EnvironmentError&) {
      throw;
    } catch (const KernelError&) {
      throw;
    } catch (const Error& error) {
      throw Error("[" + path + ":" + std::to_string(at->place.line) + ":" + std::to_string(at->place.column) + "] " +
                  at->type() + (at->name.empty() ? "" : " '" + at->name + "'") + ", " + error.what());
    }
  };
  return net;
}

}  // namespace ampcheck::checks::train
