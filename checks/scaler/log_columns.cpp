// SPDX-License-Identifier: Apache-2.0
// Which quantity a named column holds.
#include <algorithm>
#include <cctype>
#include <utility>

#include "checks/scaler/log_lines.h"

namespace ampcheck::checks::scaler {

namespace {

using enum Quantity;

constexpr std::pair<std::string_view, Quantity> kNames[] = {
    {"step", step},
    {"scale", scale},
    {"scale_before", attempted},
    {"scale_after", reduced},
    {"skipped", skipped},
    {"stepped", stepped},
    {"skipped_total", skipped_total},
    {"loss", loss},
    {"grad_norm", norm},
    {"lr", lr},
    {"samples", samples},
    {"rank", rank},
    {"scaler", scaler},
};

/// What else columns are called.
constexpr std::pair<std::string_view, Quantity> kAlso[] = {
    {"iteration", step},
    {"iter", step},
    {"global_step", step},
    {"num_updates", step},
    {"trainer_step", step},
    {"loss_scale", scale},
    {"grad_scale", scale},
    {"amp_scale", scale},
    {"loss_scaling", scale},
    {"scaler_scale", scale},
    {"found_inf", skipped},
    {"overflow", skipped},
    {"skip", skipped},
    {"is_skipped", skipped},
    {"skipped_steps", skipped_total},
    {"num_skipped", skipped_total},
    {"train_loss", loss},
    {"lm_loss", loss},
    {"gnorm", norm},
    {"gradient_norm", norm},
    {"total_norm", norm},
    {"learning_rate", lr},
    {"consumed_samples", samples},
    {"global_rank", rank},
    {"local_rank", rank},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ranges::replace_if(
      out, [](char c) { return c == ' ' || c == '-' || c == '.'; }, '_');
  return out;
}

}  // namespace

std::optional<Quantity> find_quantity(std::string_view name) {
  for (const auto& [known, quantity] : kNames)
    if (known == name) return quantity;
  return std::nullopt;
}

std::string quantity_names() {
  std::string out;
  for (const auto& [known, quantity] : kNames) out += (out.empty() ? "" : ", ") + std::string(known);
  return out;
}

std::optional<Quantity> Columns::of(std::string_view name) {
  constexpr std::size_t kMostNames = 10'000;
  if (const auto at = known_.find(name); at != known_.end()) return at->second;
  const std::optional<Quantity> out = look_up(name);
  if (known_.size() < kMostNames) known_.emplace(name, out);
  return out;
}

std::optional<Quantity> Columns::look_up(std::string_view name) const {
  if (const auto own = own_.find(std::string(name)); own != own_.end()) return own->second;
  std::string plain = lower(name);
  if (const std::size_t slash = plain.rfind('/'); slash != std::string::npos) plain.erase(0, slash + 1);
  std::optional<Quantity> known = find_quantity(plain);
  for (const auto& [also, quantity] : kAlso)
    if (!known && also == plain) known = quantity;
  if (!known) return known;
  for (const auto& [name, quantity] : own_)  // what the user named is not taken from another column
    if (quantity == *known) return std::nullopt;
  return known;
}

}  // namespace ampcheck::checks::scaler
