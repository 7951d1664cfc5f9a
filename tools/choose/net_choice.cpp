// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/net_choice.h"

#include <algorithm>

#include "checks/models/real_data.h"
#include "checks/train/net_toml.h"
#include "src/file_bytes.h"
#include "tools/choose/as_usage.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

using namespace checks::train;

ChosenNet choose_net(const NetOptions& options, const std::string& model, const std::string& file) {
  ChosenNet out{.options = {.model = model,
                            .loss = options.loss,
                            .batch = options.batch,
                            .width = options.width,
                            .seed = options.seed,
                            .data = {}},
                .own = {}};
  const bool named = options.data == "digits" || options.data == "text" || options.data == "random";
  if (!file.empty()) {
    if (named)
      throw UsageError("[--data] got '" + options.data + "' beside '" + file +
                       "', which says it; want a folder or nothing");
    require_readable(file);
    out.own = as_usage([&] { return read_net(TomlFile(read_bytes(file, "net"), file), out.options, options.data); });
    return out;
  }
  const auto info = std::find_if(nets().begin(), nets().end(), [&](const NetInfo& net) { return net.name == model; });
  if (info == nets().end())
    throw UsageError("[" + options.verb + "] got '" + model +
                     "', want mlp, conv, transformer, tutorial or a net's FILE.toml");
  const auto refuse = [&](bool when, const char* flag, const char* want) {
    if (when) throw UsageError(std::string("[") + flag + "] got it where nothing uses it, want " + want);
  };
  refuse(options.width > 0 && model != "tutorial", "--width", "model tutorial");
  refuse(!options.loss.empty() && model != "mlp", "--loss", "model mlp: the others have a loss of their own");
  if (named && options.data != info->data)
    throw UsageError("[--data] got '" + options.data + "', want " + std::string(info->data) + ", which " + model +
                     " is trained on");
  if (info->data != "random") out.options.data = checks::models::find_data(named ? "" : options.data);
  return out;
}

}  // namespace ampcheck::tools
