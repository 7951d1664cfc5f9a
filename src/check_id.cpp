// SPDX-License-Identifier: Apache-2.0
#include "src/check_id.h"

namespace ampcheck {

namespace {

using Kind = CheckId::Kind;

const char* first_words(Kind kind) {
  switch (kind) {
    case Kind::backward: return "backward";
    case Kind::batch_invariance: return "batch_invariance";
    case Kind::bias: return "bias";
    case Kind::bias_untested: return "bias along";
    case Kind::call: return "call";
    case Kind::correlation: return "correlation";
    case Kind::forward: return "forward";
    case Kind::guards: return "guards";
    case Kind::history: return "history";
    case Kind::homogeneity: return "homogeneity";
    case Kind::inputs_unchanged: return "inputs unchanged";
    case Kind::jvp: return "jvp";
    case Kind::jvp_product: return "jvp dot product";
    case Kind::loss_scale: return "loss scale";
    case Kind::poison: return "poison";
    case Kind::printed: return "printed";
    case Kind::range: return "range";
    case Kind::repeats: return "repeats";
    case Kind::row_independence: return "row_independence";
    case Kind::simulated: return "simulated";
    case Kind::written: return "written";
  }
  return "?";
}

}  // namespace

std::string name(const CheckId& id) {
  std::string out = first_words(id.kind);
  if (!id.tensor.empty()) out += " " + id.tensor;
  if (!id.dim.empty()) out += " " + id.dim;
  if (id.probe >= 0) out += " probe " + std::to_string(id.probe);
  if (id.at_saved) out += " at saved";
  if (id.loss_scale) out += " at loss scale 2^" + std::to_string(*id.loss_scale);
  return out;
}

bool judges_values(const CheckId& id) { return is_of_pass(id) || id.kind == Kind::jvp || id.kind == Kind::jvp_product; }

bool is_of_pass(const CheckId& id) { return id.kind == Kind::forward || id.kind == Kind::backward; }

}  // namespace ampcheck
