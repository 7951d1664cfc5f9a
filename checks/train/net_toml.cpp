// SPDX-License-Identifier: Apache-2.0
#include "checks/train/net_toml.h"

#include <algorithm>
#include <map>
#include <memory>

#include "checks/models/layers.h"
#include "checks/models/real_data.h"
#include "src/random.h"

namespace ampcheck::checks::train {

namespace {

using namespace models;

const std::vector<std::string> kTypes = {"linear", "conv2d", "embedding", "attention", "layer_norm", "rms_norm", "add", "mul", "max_pool2d", "flatten",
                                         "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softmax", "log_softmax"};
constexpr int kWithWeights = 6, kFirstUnary = 10;  // the first of kTypes have weights, the last are ops of one input
constexpr std::int64_t kTime = 16;                 // characters of a passage
constexpr std::int64_t kMostExtent = 1 << 20;

struct Layer {
  int kind = 0;  ///< in kTypes
  std::string name, of;
  std::int64_t outputs = 0, heads = 1;
  TomlPlace place;
  const std::string& type() const { return kTypes[static_cast<std::size_t>(kind)]; }
};

std::int64_t positive(const TomlSection& section, const char* key, std::int64_t otherwise) {
  const std::optional<std::int64_t> value = section.integer(key);
  if (value && (*value < 1 || *value > kMostExtent)) section.fail(key, "got " + std::to_string(*value) + ", want a whole number from 1 to " + std::to_string(kMostExtent));
  return value.value_or(otherwise);
}

/// A key of some types alone.
void require_type(const TomlSection& section, const char* key, const Layer& layer, std::initializer_list<const char*> types) {
  if (section.find(key) == nullptr || std::find(types.begin(), types.end(), layer.type()) != types.end()) return;
  std::string list;
  for (const char* type : types) list += (list.empty() ? "" : ", ") + std::string(type);
  section.fail(key, "got it in a layer of type " + layer.type() + ", want it in " + list + " alone");
}

Layer read_layer(const TomlFile& file, const TomlNode& node, const std::vector<Layer>& before) {
  const TomlSection section(file, node, "layer", {"type", "name", "outputs", "heads", "of"});
  Layer layer;
  layer.place = node.place;
  const std::optional<int> kind = section.choice("type", kTypes);
  if (!kind) section.fail("type", "got a layer without it, want one");
  layer.kind = *kind;
  require_type(section, "outputs", layer, {"linear", "conv2d", "embedding"});
  require_type(section, "heads", layer, {"attention"});
  require_type(section, "of", layer, {"add", "mul"});
  layer.outputs = positive(section, "outputs", 0);
  layer.heads = positive(section, "heads", 1);
  if (layer.outputs == 0 && (layer.type() == "conv2d" || layer.type() == "embedding")) section.fail("outputs", "got a " + layer.type() + " without it, want a number");
  if (layer.kind < kWithWeights) layer.name = "layer" + std::to_string(std::count_if(before.begin(), before.end(), [](const Layer& l) { return l.kind < kWithWeights; }));
  layer.name = section.text("name").value_or(layer.name);
  if (layer.name.find('.') != std::string::npos) section.fail("name", "got '" + layer.name + "', want one without a dot: what follows it names a layer's own weights");
  std::vector<std::string> names;
  for (const Layer& l : before)
    if (!l.name.empty()) names.push_back(l.name);
  if (!layer.name.empty() && std::find(names.begin(), names.end(), layer.name) != names.end()) section.fail("name", "got '" + layer.name + "' again, want another name for each layer");
  if (layer.type() != "add" && layer.type() != "mul") return layer;
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
  bool images = false, mse = false;
  std::uint64_t seed = 1;
  std::int64_t classes() const { return kind == Kind::digits ? kDigitClasses : kind == Kind::text ? text->vocabulary : width; }
};

Data read_data(const TomlSection& root, const std::vector<Layer>& layers, const NetOptions& options, const std::string& folder) {
  Data out;
  const int kind = root.choice("data", {"digits", "text", "random"}).value_or(0);
  out.kind = static_cast<Data::Kind>(kind);
  out.seed = options.seed;
  out.mse = options.loss == "mse" || out.kind == Data::Kind::random;
  out.images = layers.front().type() == "conv2d";
  if (out.kind == Data::Kind::digits) out.digits = std::make_shared<const Digits>(read_digits(find_data(folder)));
  if (out.kind == Data::Kind::text) out.text = std::make_shared<const Text>(read_text(find_data(folder)));
  if (out.kind == Data::Kind::text && out.mse) root.fail("data", "got text with loss mse, want cross_entropy");
  if (out.kind != Data::Kind::random && root.find("width") != nullptr) root.fail("width", "got it without data = \"random\", want it with that alone");
  out.width = positive(root, "width", 64);
  constexpr std::int64_t kRows[] = {64, 4, 128};
  out.rows = options.batch > 0 ? options.batch : kRows[kind];
  return out;
}

/// [rows * time, width] by heads, each character seeing those before it.
Var causal_attention(Tape& t, const Layer& layer, Var x, std::int64_t rows) {
  const std::int64_t width = t.shape(x)[1], each = width / layer.heads;
  if (width % layer.heads != 0) throw Error("heads, got " + std::to_string(layer.heads) + " of " + std::to_string(width) + " columns, want a divisor");
  if (t.shape(x)[0] != rows * kTime) throw Error("input, got " + t.shape(x).str() + ", want passages of text");
  const auto heads = [&](const char* which) { return exchanged(t, linear(t, layer.name + "." + which, x, width), rows, kTime, layer.heads, each, {rows, layer.heads, kTime, each}); };
  const Var q = heads("q"), k = heads("k"), v = heads("v");
  const Var o = t.call("attention", {{"q", q}, {"k", k}, {"v", v}});
  return linear(t, layer.name + ".out", exchanged(t, o, rows, layer.heads, kTime, each, {rows * kTime, width}), width);
}

void require_rank(const Tape& t, Var x, int rank, const char* want) {
  if (t.shape(x).rank != rank) throw Error("input, got " + t.shape(x).str() + ", want " + want);
}

Var apply(Tape& t, const Layer& layer, Var x, const Data& data, const std::map<std::string, Var>& named) {
  const std::string& type = layer.type();
  if (type == "embedding") {
    require_rank(t, x, 1, "characters: the first layer, with data = \"text\"");
    return t.call("embedding", {{"weight", t.weight(layer.name + ".weight", {data.classes(), layer.outputs}, 4)}, {"index", x}});
  }
  if (type == "conv2d" || type == "max_pool2d") {
    require_rank(t, x, 4, "images");
    if (type == "max_pool2d" && std::min(t.shape(x).last(1), t.shape(x).last()) < 2) throw Error("input, got " + t.shape(x).str() + ", want images of two rows and columns at least");
    return type == "conv2d" ? conv3x3(t, layer.name, x, layer.outputs) : t.call("max_pool2d", {{"x", x}});
  }
  if (type == "flatten") return t.reshape(x, {t.shape(x)[0], t.shape(x).count() / t.shape(x)[0]});
  if (type == "add" || type == "mul") return t.call(type, {{"x", x}, {"y", named.at(layer.of)}});
  if (layer.kind >= kFirstUnary && t.shape(x).rank > 1) return unary(t, type.c_str(), x);
  require_rank(t, x, 2, "[rows, columns] (type = \"flatten\" makes them of images, \"embedding\" of characters)");
  if (type == "linear") return linear(t, layer.name, x, layer.outputs > 0 ? layer.outputs : data.classes());
  if (type == "attention") return causal_attention(t, layer, x, data.rows);
  return type == "layer_norm" ? layer_norm(t, layer.name, x) : rms_norm(t, layer.name, x);
}

/// Inputs of a batch; `target` is what they should give: classes, or numbers.
Var inputs(Tape& t, const Data& data, const std::string& name, std::int64_t batch, std::vector<double>& target) {
  if (data.kind == Data::Kind::digits) {
    Digits rows = digits_batch(*data.digits, batch, data.rows);
    target = std::move(rows.classes);
    return t.data(data.images ? Shape{data.rows, 1, 8, 8} : Shape{data.rows, 64}, std::move(rows.pixels));
  }
  std::vector<double> x;
  if (data.kind == Data::Kind::text) {
    const std::vector<std::int64_t>& tokens = data.text->tokens;
    for (std::int64_t row = 0; row < data.rows; ++row)
      for (std::int64_t i = 0; i < kTime; ++i) {
        const auto at = static_cast<std::size_t>(((batch * data.rows + row) * kTime + i) % (std::ssize(tokens) - 1));
        x.push_back(static_cast<double>(tokens[at])), target.push_back(static_cast<double>(tokens[at + 1]));
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

void add_loss(Tape& t, const Data& data, Var y, std::vector<double> target) {
  const Shape want{data.kind == Data::Kind::text ? data.rows * kTime : data.rows, data.classes()};
  if (!(t.shape(y) == want)) throw Error("output, got " + t.shape(y).str() + " from the last layer, want " + want.str());
  if (data.kind == Data::Kind::random) t.add_loss(t.call("mse_loss", {{"x", y}, {"target", t.data(want, std::move(target))}}), 1);
  else add_class_loss(t, y, target, data.mse);
}

}  // namespace

Net read_net(const TomlFile& file, const NetOptions& options, const std::string& folder) {
  const TomlSection root(file, file.root(), "net", {"name", "data", "width", "layers", "train"});
  const TomlNode* const list = root.find("layers");
  if (list == nullptr || list->kind != TomlNode::Kind::array || list->entries.empty()) root.fail("layers", "got none, want tables [[layers]]");
  std::vector<Layer> layers;
  for (const TomlEntry& entry : list->entries) layers.push_back(read_layer(file, entry.value, layers));
  Net net;
  net.name = root.text("name").value_or("net");
  const Data data = read_data(root, layers, options, folder);
  net.layers = std::to_string(static_cast<int>(data.kind)) + "," + std::to_string(data.width);
  for (const Layer& l : layers) net.layers += " " + l.type() + ":" + l.name + ":" + l.of + ":" + std::to_string(l.outputs) + ":" + std::to_string(l.heads);
  net.forward = [=, path = file.path(), name = net.name](Tape& t, std::int64_t batch) {
    std::vector<double> target;
    Var x = inputs(t, data, name, batch, target);
    std::map<std::string, Var> named;
    const Layer* at = nullptr;
    try {
      for (const Layer& layer : layers) {
        at = &layer;
        x = apply(t, layer, x, data, named);
        if (!layer.name.empty()) named[layer.name] = x;
      }
      add_loss(t, data, x, std::move(target));
    } catch (const EnvironmentError&) {
      throw;
    } catch (const Error& error) {
      throw Error("[" + path + ":" + std::to_string(at->place.line) + ":" + std::to_string(at->place.column) + "] " + at->type() + (at->name.empty() ? "" : " '" + at->name + "'") + ", " + error.what());
    }
  };
  return net;
}

}  // namespace ampcheck::checks::train
