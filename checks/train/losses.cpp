// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/losses.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

LossChoice read_loss(const std::string& text) {
  const auto fail = [&] { return Error("[train] loss, got '" + text + "', want " + kLossText); };
  LossChoice out;
  out.text = text;
  std::string kind = text;
  if (const std::size_t at = kind.find('@'); at != std::string::npos) {
    out.layer = kind.substr(at + 1);
    kind.resize(at);
    if (out.layer.empty()) throw fail();
  }
  if (const std::size_t times = kind.find('*'); times != std::string::npos) {
    const char *const begin = kind.data() + times + 1, *const end = kind.data() + kind.size();
    const auto [stop, error] = std::from_chars(begin, end, out.weight);
    if (error != std::errc() || stop != end || !std::isfinite(out.weight)) throw fail();
    kind.resize(times);
  }
  out.mse = kind == "mse";
  if (!out.mse && kind != "cross_entropy") throw fail();
  return out;
}

}  // namespace

std::vector<LossChoice> read_losses(const std::string& text) {
  std::vector<LossChoice> out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    out.push_back(read_loss(text.substr(from, comma - from)));
    from = comma + 1;
  }
  return out;
}

}  // namespace ampcheck::checks::train
