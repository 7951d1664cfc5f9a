// SPDX-License-Identifier: Apache-2.0
// What torch's backward passes and custom functions were seen to do under autocast, played with ours.
#include "tests/support/autocast_facts.h"

namespace ampcheck::autocast_facts {
namespace {

std::string backward_dtypes(const Golden& fact) {
  Differences d;
  const Golden &result = fact.at("result"), &forward = result.at("forward"), &grads = result.at("grad_dtypes");
  Weights weights(b_values());
  Forward run(weights);
  Var h, r, loss;
  {
    const Autocast here(kCpu, region(low_of(fact)));
    h = run.graph.call("linear", {{"x", run.graph.parameter("x.value", {kSide, kSide}, 0, 0)}, {"weight", run.w()}});
    r = models::unary(run.graph, "relu", h);
    loss = run.graph.call(
        "mse_loss", {{"x", r}, {"target", run.graph.data({kSide, kSide}, std::vector<double>(kSide * kSide, 0))}});
  }
  run.graph.add_loss(loss, 1);
  run.graph.backward(1, 1);
  d.same("mm", run.graph.dtype(h), dtype_of(forward.at("mm").text));
  d.same("relu", run.graph.dtype(r), dtype_of(forward.at("relu").text));
  d.same("mse_loss", run.graph.dtype(loss), dtype_of(forward.at("mse_loss").text));
  d.same("grad of mm", run.graph.grad(h).dtype(), dtype_of(grads.at("mm_output").text));
  d.same("grad of relu", run.graph.grad(r).dtype(), dtype_of(grads.at("relu_output").text));
  d.same("grad of the loss", run.graph.grad(loss).dtype(), dtype_of(grads.at("loss").text));
  d.same("weight", weights.grad("w.weight").dtype(), dtype_of(result.at("weight_grad").text));
  d.same("input", weights.grad("x.value").dtype(), dtype_of(result.at("input_grad").text));
  Tensor grad(weights.grad("w.weight").dtype(), {kSide, kSide});
  from_doubles(transposed(to_doubles(weights.grad("w.weight").view())), grad.view());
  d.same("weight's values", bool(tests::same_tensor(grad, result.at("weight_grad_values"))), true);
  return d.text();
}

std::string backward_inside_region(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  std::map<bool, Tensor> grads;
  for (const bool inside : {true, false}) {
    Weights weights(b_values());
    Forward run(weights);
    std::optional<Autocast> here(std::in_place, kCpu, region(low_of(fact)));
    run.add_float_sum(run.a_mm_w());
    if (!inside) here.reset();
    run.graph.backward(1, 1);
    grads[inside] = weights.grad("w.weight");
    d.same(inside ? "inside" : "outside", grads[inside].dtype(),
           dtype_of(result.at(inside ? "weight_grad_inside" : "weight_grad_outside").text));
  }
  d.same("bits", to_doubles(grads[true].view()) == to_doubles(grads[false].view()), result.at("bitwise_equal").truth);
  return d.text();
}

std::string rounding_at_a_widening_cast(const Golden& fact) {
  Differences d;
  for (const Golden& row : fact.at("result")) {
    train::ParameterSet all("facts", 1, low_of(fact));
    all.set("h.value", {1, 1}, {1});
    models::Recordings recordings;
    train::Graph graph(all, recordings, {.autocast = kCpu});
    Var out;
    {
      const Autocast here(kCpu, region(low_of(fact)));
      out = graph.call("mse_loss", {{"x", graph.parameter("h.value", {1, 1}, 0, 0)},
                                    {"target", graph.data({1, 1}, {0})}});  // of one element the mean is the sum
    }
    graph.add_loss(out, 1);
    const double incoming = tests::real(row.at("incoming"));
    graph.backward(static_cast<float>(incoming), 1);
    const Tensor& grad = all.find("h.value")->grad;
    const std::string where = std::to_string(incoming);
    d.same(where + " out", graph.dtype(out), dtype_of(row.at("out_dtype").text));
    d.same(where + " grad",
           bool(tests::same_number(to_doubles(grad.view())[0], tests::real(row.at("grad_at_low_input")))), true);
    d.same(where + " grad dtype", grad.dtype(), dtype_of(row.at("grad_dtype").text));
  }
  return d.text();
}

/// The dtype of cast_inputs: what the fact says, or the word of its name ("none", "low", "other" for the other type of
/// 16 bits, or a dtype of torch).
std::optional<Dtype> cast_inputs_of(const Golden& fact, Dtype low) {
  const std::string key = "cast_inputs=", &name = fact.at("name").text;
  const std::size_t at = name.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + key.size(),
                    end = std::min(name.find("_in_region", begin), name.find("_out_of_region", begin));
  const std::string word = fact.contains("cast_inputs") ? fact.at("cast_inputs").text : name.substr(begin, end - begin);
  if (word == "none") return std::nullopt;
  if (word == "low") return low;
  if (word == "other") return low == Dtype::fp16 ? Dtype::bf16 : Dtype::fp16;
  return dtype_of(word);
}

/// custom_fwd and custom_bwd with and without cast_inputs, or neither, in and out of a region: states, casts, and the
/// dtypes that mm computes in.
std::string custom_function(const Golden& fact) {
  Differences d;
  const std::string& name_of = fact.at("name").text;
  const Golden& result = fact.at("result");
  const auto named = [&](const char* part) { return name_of.find(part) != std::string::npos; };
  const bool decorated = named("cast_inputs=");
  const Dtype low = low_of(fact);
  const std::optional<Dtype> cast = cast_inputs_of(fact, low);
  std::vector<Dtype> inputs(2, name_of.ends_with("fp64") ? Dtype::fp64 : name_of.ends_with("low") ? low : Dtype::fp32);
  if (name_of.ends_with("mixed")) inputs[1] = low;
  std::optional<Autocast> outer;
  if (named("_in_region")) outer.emplace(kCpu, region(low));
  CustomOpContext context;
  std::vector<Dtype> saved;
  Dtype output;
  {
    std::optional<CustomForward> forward;
    if (decorated) {
      forward.emplace(kCpu, cast);
      context = forward->context();
    }
    const auto input = [&](Dtype dtype) { return forward ? forward->input_dtype(dtype) : dtype; };
    d.same_state("forward", autocast_state(kCpu), result.at("forward_state"));
    for (const Dtype dtype : inputs) saved.push_back(input(dtype));
    d.same_dtypes("inputs", saved, result.at("forward_input_dtypes"));
    const Golden& container = result.at("container");
    d.same_dtypes("container", {input(Dtype::fp32), input(Dtype::fp64), input(Dtype::i64)}, container);
    const std::optional<Dtype> product = mm(saved[0], saved[1]);
    d.same("forward mm", product.has_value(), !result.contains("forward_mm_error"));
    output = product.value_or(Dtype::fp32);  // the function of the fact widens where mm refuses
    d.same("output", output, dtype_of(result.at("forward_output_dtype").text));
  }
  outer.reset();
  std::optional<CustomBackward> backward;
  if (decorated) backward.emplace(context);
  d.same_state("backward", autocast_state(kCpu), result.at("backward_state"));
  d.same("grad", output, dtype_of(result.at("backward_grad_dtype").text));  // of the output's dtype
  d.same_dtypes("saved", saved, result.at("backward_saved_dtypes"));
  std::vector<Dtype> computed;
  for (const Dtype dtype : saved)
    if (const std::optional<Dtype> product = mm(output, dtype)) computed.push_back(*product);
  const bool refused = computed.size() < saved.size();
  d.same("backward mm", refused, result.contains("backward_mm_error"));
  if (!refused) d.same_dtypes("mm dtypes", computed, result.at("backward_mm_dtypes"));
  d.same_dtypes("input grads", inputs, result.at("input_grad_dtypes"));  // each arrives in its input's dtype
  return d.text();
}

const Plays own_plays{{"backward/dtypes", backward_dtypes},
                      {"backward/inside_region", backward_inside_region},
                      {"backward/rounding_at_a_widening_cast", rounding_at_a_widening_cast},
                      {"custom/cast_inputs=", custom_function, {"_mm_error/"}},
                      {"custom/no_decorators", custom_function, {"_mm_error/"}}};

TEST(AutocastFacts, BackwardAndCustomFunctionsAreTorchs) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  expect_as_torch(golden.at("facts"), "backward/");
  expect_as_torch(golden.at("facts"), "custom/");
}

}  // namespace
}  // namespace ampcheck::autocast_facts
