// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/loading.h"

#include <utility>

#include "src/error.h"

namespace ampcheck::checks {

namespace {

LoadingHooks& hooks() {
  static LoadingHooks all;
  return all;
}

std::string& refused() {
  static std::string why;
  return why;
}

}  // namespace

void refuse_to_open(std::string why) { refused() = std::move(why); }

void watch_loading(LoadingHooks given) { hooks() = std::move(given); }

std::optional<OutsideDescription> described_outside(const std::string& path, Opening opening) {
  if (!hooks().outside || (opening == Opening::run && !hooks().kernels)) return std::nullopt;
  struct Told {
    const std::string& path;
    std::string left = {};
    ~Told() {
      if (hooks().after) hooks().after(path, left);
    }
  };
  if (hooks().before) hooks().before(path);
  Told told{path};
  std::optional<OutsideDescription> out = hooks().outside(path);
  if (out) told.left = out->left;
  return out;
}

void run_outside(const std::string& path, Opening opening, std::vector<OpDef>& ops) {
  if (opening == Opening::run) hooks().kernels(path, ops);
}

Loading::Loading(std::string path) : path_(std::move(path)) {
  if (hooks().before) hooks().before(path_);
  if (!refused().empty()) throw EnvironmentError("[--sandbox] got '" + path_ + "': " + refused());
}

Loading::~Loading() {
  const std::string left = hooks().keeps_state ? "" : state_.restore();
  if (hooks().after) hooks().after(path_, left);
}

}  // namespace ampcheck::checks
