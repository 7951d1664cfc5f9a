// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/plugin.h"

#include <dlfcn.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "checks/define/lasting.h"
#include "checks/doors/launcher_toml.h"
#include "checks/doors/loading.h"
#include "checks/doors/toml_launchers.h"
#include "src/ptx/gpu.h"
#include "src/toml_file.h"

namespace ampcheck::checks {

namespace {

constexpr const char* kSymbol = "ampcheck_plugin_v1";

/// dlopen searches the system for a name without a slash; the user means a file.
std::string as_file(const std::string& path) { return path.find('/') == std::string::npos ? "./" + path : path; }

std::string name_of_file(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// "softmax.cu@launch.toml": the kernel in softmax.cu, launched as the TOML file says.
struct KernelAndToml {
  std::string kernel, toml;
};
KernelAndToml parts_of(const std::string& word) {
  const std::size_t at = word.rfind('@');
  const bool pair = at != std::string::npos && is_kernel_file(std::string_view(word).substr(0, at));
  return pair ? KernelAndToml{word.substr(0, at), word.substr(at + 1)} : KernelAndToml{"", word};
}

std::string text_of_toml(const std::string& path) {
  if (std::error_code error; !std::filesystem::is_regular_file(path, error))
    throw EnvironmentError("[library] there is no file '" + path + "', want a TOML file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw EnvironmentError("[plug-in] got '" + path + "', which cannot be read");
  std::string text(kMostTomlBytes + 1, '\0');  // one more is an error of the reader
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw EnvironmentError("[plug-in] got '" + path + "', which cannot be read");
  return text;
}

/// An op of launchers that a TOML file describes.
Plugin load_toml(const std::string& word, Opening opening) {
  const auto [kernel, path] = parts_of(word);
  const std::string text = text_of_toml(path);
  TomlOp made = op_of_toml(text, path, kernel);
  const bool outside = opening != Opening::describe && described_outside(word, opening).has_value();
  if (opening != Opening::describe && !outside) made.resolve();
  Plugin out{word, {}};
  out.ops.push_back(std::move(made.op));
  if (made.backward_op) out.ops.push_back(std::move(*made.backward_op));
  for (OpDef& op : out.ops) op.plugin = word;
  if (outside) run_outside(word, opening, out.ops);
  return out;
}

Plugin load(const std::string& path, Opening opening) {
  if (path.ends_with(".toml")) return load_toml(path, opening);
  if (std::error_code error; !std::filesystem::is_regular_file(path, error))
    throw EnvironmentError("[library] there is no file '" + path + "', want a shared library");
  if (const std::string suffix = std::filesystem::path(path).extension();
      suffix == ".cpp" || suffix == ".cc" || suffix == ".cxx" || suffix == ".c")
    throw EnvironmentError("[library] got '" + path +
                           "', which is source, want the library that it makes: c++ -std=c++20 "
                           "-O2 -shared -fPIC -I HEADERS " +
                           path + " -o libmy_op.so");
  if (const auto there = described_outside(path, opening)) {
    Plugin out{.path = path, .ops = ops_of(there->plugin, name_of_file(path)), .refused = there->refused};
    for (OpDef& op : out.ops) op.plugin = path;
    run_outside(path, opening, out.ops);
    return out;
  }
  const Loading loading(path);
  void* library = dlopen(as_file(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const said = dlerror();
    const std::string why = said == nullptr ? "no reason given" : said;
    const bool runtime = why.find("undefined symbol: cuda") != std::string::npos ||
                         why.find("undefined symbol: __cuda") != std::string::npos;
    throw EnvironmentError("[plug-in] got '" + path + "', which cannot be loaded: " + why +
                           (!runtime               ? ""
                            : ptx::simulates_gpu() ? ", which the simulated GPU does not answer (ampcheck explain "
                                                     "gpu-kernels)"
                                                   : ", want the CUDA runtime linked, or --device ptx"));
  }
  const auto describe = reinterpret_cast<const ac_plugin* (*)()>(dlsym(library, kSymbol));
  if (describe == nullptr)
    throw PluginError("[" + path + "] got a library without the function " + kSymbol +
                      ", want one built with ampcheck/op.h or ampcheck/ampcheck_op.h");
  const ac_plugin* description = nullptr;
  try {
    description = describe();
  } catch (...) {
    throw PluginError("[" + path + "] got an exception out of " + kSymbol + ", want a description");
  }
  Plugin out{path, {}};
  out.ops = ops_of(description, name_of_file(path), &out.refused);
  out.description = description;
  for (OpDef& op : out.ops) op.plugin = path;
  return out;
}

}  // namespace

std::string simulated_kernel(const std::string& path) {
  const auto [kernel, toml] = parts_of(path);
  if (!kernel.empty() || !toml.ends_with(".toml")) return kernel;
  try {
    return kernel_named_in(text_of_toml(toml), toml);
  } catch (const EnvironmentError&) {  // whoever loads it says it
    return "";
  }
}

const Plugin& load_plugin(const std::string& path, Opening opening) {
  static std::mutex mutex;
  struct Loaded {
    Opening opening;
    Plugin plugin;
  };
  static std::deque<Loaded> loaded;  // a deque: references stay valid
  const std::lock_guard lock(mutex);
  for (const Loaded& known : loaded)
    if (known.plugin.path == path && known.opening == opening) return known.plugin;
  loaded.push_back({opening, load(path, opening)});
  for (const OpDef& op : loaded.back().plugin.ops) keep_for_good(op);
  return loaded.back().plugin;
}

}  // namespace ampcheck::checks
