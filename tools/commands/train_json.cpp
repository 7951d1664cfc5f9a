// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A training run as JSON.
#include "checks/train/fp8_check.h"
#include "tools/commands/train_report.h"
#include "tools/report/json.h"
#include "tools/trace/clip_text.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

Json place_json(const Place& p) {
  const Tally& t = p.tally;
  return {{"op", p.where.op},
          {"layer", p.where.layer},
          {"phase", checks::train::name(p.where.phase)},
          {"cast", p.where.cast},
          {"tensor", p.where.tensor},
          {"dtype", name(p.where.dtype)},
          {"elements", t.elements},
          {"nonzero", t.nonzero},
          {"flushed", t.flushed},
          {"overflowed", t.overflowed},
          {"local_error", json_number(t.local_error())},
          {"carried_error", json_number(t.carried_error())}};
}

Json fault_json(const FaultEvent& fault) {
  return {{"step", fault.step}, {"role", checks::train::name(fault.role)}, {"tensor", fault.where.str()}};
}

Json finding_json(const RunFinding& f) {
  return {{"code", text_of(f.code).name},
          {"class", text_of(f.code).word},
          {"title", text_of(f.code).title},
          {"step", f.step},
          {"where", f.where},
          {"what", f.what}};
}

Json step_json(const StepResult& s) {
  Json entry = {{"step", s.step},
                {"loss", json_number(s.loss)},
                {"scale", json_number(s.scale)},
                {"found_inf", s.found_inf},
                {"stepped", s.stepped},
                {"scale_after", json_number(s.scale_after)},
                {"lr", s.lr},
                {"stagnant_share", s.stagnant_share},
                {"updates",
                 {{"intended", s.updates.intended},
                  {"stagnant", s.updates.stagnant},
                  {"copy_stagnant", s.updates.copy_stagnant},
                  {"with_grad", s.updates.with_grad},
                  {"with_grad_stagnant", s.updates.with_grad_stagnant},
                  {"second_moment_zero", s.updates.second_moment_zero},
                  {"epsilon_zero", s.updates.epsilon_zero}}}};
  if (s.grad_norm) entry["grad_norm"] = json_number(*s.grad_norm);
  if (s.fp64_grad_norm) entry["fp64_grad_norm"] = json_number(*s.fp64_grad_norm);
  if (s.fp64_loss) {
    entry["fp64_loss"] = json_number(*s.fp64_loss);
    entry["apart"] = json_number(*s.apart);
    entry["rounding"] = json_number(*s.rounding);
  }
  for (const double loss : s.losses) entry["losses"].push_back(json_number(loss));
  for (const OptimizerStep& o : s.optimizers) entry["optimizers"].push_back(optimizer_json(o));
  if (s.spread) entry["spread"] = json_number(*s.spread);
  add_clipping(entry, {s.clipping, s.decay});
  return entry;
}

Json scale_json(const ScaleAdvice& s) {
  return {{"lossless_low", s.low},
          {"lossless_high", s.high},
          {"best", s.best},
          {"best_share", s.best_share},
          {"unscaled_share", s.unscaled_share},
          {"flushes", s.flushes},
          {"overflows_at", s.overflows_at},
          {"overflows", s.overflows}};
}

/// The recipe, and what the formats took from each tensor.
Json fp8_json(const Trainer& trainer) {
  const checks::train::TrainOptions& o = trainer.options();
  Json out = {{"recipe", o.fp8->str()}, {"between", name(o.dtype)}, {"tensors", Json::array()}};
  if (trainer.judge() == nullptr || trainer.judge()->fp8() == nullptr) return out;
  for (const Fp8Loss& l : trainer.judge()->fp8()->losses())
    out["tensors"].push_back({{"op", l.op},
                              {"layer", l.layer},
                              {"tensor", l.tensor},
                              {"dtype", name(l.dtype)},
                              {"elements", l.elements},
                              {"saturated", l.saturated},
                              {"zeros", l.zeros}});
  return out;
}

}  // namespace

std::string train_json(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps,
                       const Advice& advice, double seconds) {
  const checks::train::TrainOptions& o = trainer.options();
  Json out = {{"schema", "ampcheck.train/1"},
              {"model", trainer.net().name},
              {"dtype", dtype_name(o)},
              {"autocast", trainer.autocast_list()},
              {"autocast_tables", kAutocastTablesVersion},
              {"scaler", scaler_name(o)},
              {"seed", o.seed},
              {"device", o.stream ? "cuda" : "cpu"},
              {"local_shadow", o.shadows.local},
              {"carried_shadow", o.shadows.carried},
              {"seconds", seconds},
              {"steps", Json::array()}};
  for (const StepResult& s : steps) out["steps"].push_back(step_json(s));
  out["of_steps"] = {
      steps.front().step,
      steps.back().step};  // what follows but for left_at and skips: a resumed run knows no tensors from before
  out["left_at"] = d.left_at ? Json(*d.left_at) : Json();
  out["skips"] = steps.back().skips;
  out["skipped"] = d.skipped;
  for (const MomentLoss& m : trainer.moment_losses())
    out["moments"].push_back({{"name", m.name},
                              {"dtype", name(m.dtype)},
                              {"elements", m.elements},
                              {"zero", m.zero},
                              {"error", json_number(m.error)},
                              {"median", json_number(m.median)}});
  if (o.fp8) out["fp8"] = fp8_json(trainer);
  if (!trainer.net().losses.empty()) out["losses"] = trainer.net().losses;
  for (std::size_t k = 0; o.rule.optimizers() > 1 && k < o.rule.optimizers(); ++k)
    out["optimizers"].push_back({{"name", o.rule.choice(k).name}, {"skips", steps.back().optimizers[k].skips}});
  for (std::size_t k = 0; k < o.rule.further.size(); ++k) {
    Json& own = out["optimizers"][k + 1];
    own["layers"] = o.rule.further[k].layers;
    if (!o.rule.further[k].clips_alone()) continue;
    own["clip_norm"] = o.rule.clip_of(k + 1).norm;
    own["clip_value"] = o.rule.clip_of(k + 1).value;
  }
  out["ranks_disagree_at"] = d.disagreed_at ? Json(*d.disagreed_at) : Json();
  out["vanished_share"] = d.vanished_share;
  out["vanished"] = Json::array();
  out["least_exact"] = Json::array();
  for (const Place& p : d.vanished) out["vanished"].push_back(place_json(p));
  for (const Place& p : d.least_exact) out["least_exact"].push_back(place_json(p));
  out["producer"] = d.producer ? fault_json(*d.producer) : Json();
  out["caught"] = d.caught ? fault_json(*d.caught) : Json();
  out["killer"] = d.killer ? fault_json(*d.killer) : Json();
  if (d.scale.known) out["loss_scale"] = scale_json(d.scale);
  out["findings"] = Json::array();
  for (const RunFinding& f : d.findings) out["findings"].push_back(finding_json(f));
  if (trainer.judge() != nullptr)
    out["judged"] = {{"calls", trainer.judge()->judged()}, {"left_out", trainer.judge()->left_out()}};
  out["try"] = advice.text;
  out["tried"] = advice.tried;
  out["no_help"] = advice.failed;
  return json_text(out);
}

}  // namespace ampcheck::tools
