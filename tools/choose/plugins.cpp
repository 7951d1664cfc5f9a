// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/plugins.h"

#include <fmt/format.h>

#include <algorithm>

#include "checks/doors/plugin.h"
#include "checks/doors/toml_launchers.h"
#include "checks/reach/certified.h"
#include "src/op_call.h"
#include "tools/choose/selection.h"

namespace ampcheck::tools {

bool is_library(std::string_view word) {
  if (word.find('(') != std::string_view::npos) return false;
  return word.find('/') != std::string_view::npos || word.ends_with(".so") || word.ends_with(".toml") ||
         checks::is_kernel_file(word) || word.ends_with(".dylib") || word.find(".so.") != std::string_view::npos;
}

namespace {

/// Notes what is wrong with ops that were asked for and are none. Throws where nothing else was asked for.
void refuse(const checks::Plugin& plugin, OpOptions& options) {
  for (const checks::RefusedOp& refused : plugin.refused) {
    const auto names_it = [&](const std::string& word) {
      return matches(word, refused.name) || op_of(word) == refused.name;
    };
    const auto others = std::span(options.words).subspan(1);  // the library is the first
    if (!others.empty() && std::none_of(others.begin(), others.end(), names_it)) continue;
    if (!others.empty() && std::all_of(others.begin(), others.end(), [&](const std::string& word) {
          return word == refused.name || op_of(word) == refused.name;
        }))
      throw UsageError(refused.why);
    options.refused.push_back(refused.why);
  }
}

}  // namespace

namespace {

/// A kernel and --launch become the one word that names both.
void join_launch(OpOptions& options) {
  const auto kernel = std::find_if(options.words.begin(), options.words.end(),
                                   [](const std::string& word) { return checks::is_kernel_file(word); });
  if (kernel == options.words.end()) {
    if (!options.launch.empty())
      throw UsageError("[--launch] got no kernel beside it, want a file of PTX or CUDA (softmax.ptx, softmax.cu)");
    return;
  }
  if (options.launch.empty())
    throw UsageError("[" + options.verb + "] got the kernel '" + *kernel +
                     "' without its launch, want --launch launch.toml (ampcheck explain gpu-kernels)");
  if (!options.launch.ends_with(".toml")) throw UsageError("[--launch] got '" + options.launch + "', want a TOML file");
  *kernel += "@" + options.launch;
}

}  // namespace

void open_plugin(OpOptions& options) {
  join_launch(options);
  const auto libraries = std::count_if(options.words.begin(), options.words.end(), is_library);
  if (libraries == 0) return;
  if (libraries > 1 || !is_library(options.words.front()))
    throw UsageError("[" + options.verb + "] got " + std::to_string(libraries) + " librar" +
                     (libraries == 1 ? "y or TOML file" : "ies or TOML files") +
                     " among other words, want one, before its selectors");
  const bool runs = options.verb != "list" && options.verb != "certify";
  try {
    const checks::Plugin& plugin =
        checks::load_plugin(options.words.front(), runs ? checks::Opening::apart : checks::Opening::describe);
    for (const checks::OpDef& op : plugin.ops) options.plugin_ops.push_back(&op);
    refuse(plugin, options);
  } catch (const checks::PluginError& error) {
    throw UsageError(error.what());
  }
  options.words.erase(options.words.begin());
}

void take_only_op(OpOptions& options) {
  if (!options.words.empty() || options.plugin_ops.empty()) return;
  std::string list;
  const std::vector<const checks::OpDef*> ops = ops_in_scope(options);
  for (const checks::OpDef* op : ops) list += (list.empty() ? "" : ", ") + op->signature.name;
  if (ops.size() != 1) throw UsageError("[" + options.verb + "] got no op, want one of " + list);
  options.words = {list};
}

void require_certified(const checks::OpDef& op) {
  if (op.forms.empty()) return;  // nothing to certify, and nothing that judges by it
  const auto known = checks::certified(op);
  const reference::FormulaCertificate& certificate = *known;
  const std::string where = "[" + op.plugin + ": op '" + op.signature.name + "'] ",
                    why = " (ampcheck certify says more)";
  for (const reference::FormAgreement& form : certificate.forms)
    if (!(std::min(form.forward_digits, form.gradient_digits) >= reference::kCertifiedDigits))
      throw UsageError(
          fmt::format("{}form '{}' is not the formula, got agreement with form '{}' to {:.1f} digits forward and "
                      "{:.1f} in the gradients, want {:.0f}{}",
                      where, form.form, op.forms.front().name, form.forward_digits, form.gradient_digits,
                      reference::kCertifiedDigits, why));
  for (const reference::CertifiedPoint& point : certificate.points)
    if (!(point.digits >= reference::kCertifiedDigits))
      throw UsageError(
          fmt::format("{}gradient of form '{}' with respect to '{}', got agreement with its difference to {:.1f} "
                      "digits, want {:.0f}{}",
                      where, point.form, point.input, point.digits, reference::kCertifiedDigits, why));
}

}  // namespace ampcheck::tools
