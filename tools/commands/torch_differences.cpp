// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/torch_differences.h"

#include <fmt/format.h>

#include <string_view>

namespace ampcheck::tools {

namespace {

constexpr TorchDifference kDifferences[] = {
    {"*", "/about", "says what the record is"},
    {"*", "/versions", "says by which torch and on which machine it was made"},
    {"*", "/*/*/name", "what an entry is called"},
    {"*", "/*/*/about", "what an entry is for"},
    {"grad_scaler_traces.json", "/scenarios[scale/bad_int]",
     "no such argument compiles in C++; torch raises an error at run time"},
    {"grad_scaler_traces.json", "/scenarios[scale/bad_list_of_int]", "no such argument compiles in C++"},
    {"grad_scaler_traces.json", "/scenarios[scale/bad_str]", "no such argument compiles in C++"},
    {"grad_scaler_traces.json", "/scenarios[new_scale/int_1024]",
     "an int converts to double in C++, where torch raises an AttributeError"},
    {"grad_scaler_traces.json", "/scenarios[custom/pass_itself]",
     "the keyword grad_scaler= of step(), which torch deprecates"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/warnings/*/category",
     "a class of Python's; that and when it warns of a scheduler before the optimizer is matched"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/types",
     "Python's containers; C++ keeps std::tuple and std::vector"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/type", "Python's map object; here a lazy range"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/scaled_grad",
     "the scaler's part of a gradient penalty is played; the gradient of a gradient is held against torch's in the "
     "training cases of kind penalty"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/norm", "as above"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/total", "as above"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/get_growth_factor/error",
     "torch's disabled scaler lacks the attribute and raises an AttributeError; ours tells its options"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/get_backoff_factor/error", "as above"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/get_growth_interval/error", "as above"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/result/attributes_after",
     "attributes that torch sets on an optimizer and deletes; ours are of a type, and empty afterwards, which is "
     "tested"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/after/grads/w/coalesced",
     "a flag of torch's sparse tensors; rows and values are matched"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/do/then_change_to",
     "an argument that must make no difference: the scaler keeps a copy of the new scale"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/do/new_scale/*",
     "an argument that is refused whatever it holds: a tensor of several elements"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/do/shape", "as above, by its shape"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/do/dtype", "as above, by its dtype"},
    {"grad_scaler_traces.json", "/scenarios/*/calls/*/do/name", "name of an attribute in Python"},
    {"grad_scaler_traces.json", "/scenarios/*/optimizers/opt1/args/momentum",
     "an argument that makes no difference: that optimizer takes one step at most"},
    {"grad_scaler_traces.json", "/training/*/max_abs_difference_control_scaled",
     "a difference of two runs of the record, each of which is matched"},
    {"unscale_kernel.json", "/unscale[dtype_refused/complex64]", "no complex numbers here"},
    {"unscale_kernel.json", "/unscale/*/grads_in/*/value", "integers, which are refused unread"},
    {"autocast_cpu.json", "/modules[module_LSTM]", "a module of many ops, of which each has its own row"},
    {"autocast_cpu.json", "/modules[module_GRU]", "as module_LSTM"},
    {"autocast_cpu.json", "/modules[module_RNN_tanh]", "as module_LSTM"},
    {"autocast_cpu.json", "/modules[module_LSTMCell]", "as module_LSTM"},
    {"autocast_cpu.json", "/modules[module_MultiheadAttention]", "as module_LSTM"},
    {"autocast_cpu.json", "/modules[module_TransformerEncoderLayer]", "as module_LSTM"},
    {"autocast_cpu.json", "/modules/*/in_region/fp64/error",
     "text of an error that torch's kernel raises where fp64 meets fp32; that it is refused is matched"},
    {"autocast_cpu.json", "/facts[region/exit_order_swapped]", "a C++ scope cannot be left out of order"},
    {"autocast_cpu.json", "/facts[region/same_object_twice]", "a region object cannot be entered twice"},
    {"autocast_cpu.json", "/facts[region/decorator]", "Python's decorator; a scope in the function does it"},
    {"autocast_cpu.json", "/facts[region/unsupported]",
     "devices and warnings of the machine that recorded it; the CPU's rule for dtypes is tested by hand"},
    {"autocast_cpu.json", "/facts[bypass/inplace_and_out]",
     "texts of errors of torch's kernels; that the calls bypass autocast is tested by hand"},
    {"autocast_cpu.json", "/facts[cache/nested_other_dtype]",
     "a fault of torch's: its cache of weight casts hands a nested region of another dtype the outer one's. Our key "
     "has the dtype; tested by hand"},
    {"autocast_cpu.json", "/facts[custom/cast_containers]", "Python containers"},
    {"autocast_cpu.json", "/facts[gradcheck/fp64_in_region]", "torch's gradcheck"},
    {"autocast_cpu.json", "/facts/*/result/mm_low_int/error",
     "text of an error that torch's kernel raises for dtypes that do not go together; which dtypes autocast hands it "
     "is matched"},
    {"autocast_cpu.json", "/facts/*/result/mm_int_low/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/mm_low_fp64/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/mm_fp64_low/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/mm_fp64_fp32/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/mse_int_int/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/forward_mm_error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/backward_mm_error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/*/mm_mixed/error", "as above"},
    {"autocast_cpu.json", "/facts/*/result/cat_other_other/error/type",
     "Python's class of the error, whose text is matched"},
    {"autocast_cpu.json", "/facts/*/result/cat_other_low/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/cat_other_fp32/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/cat_low_other_fp32/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/cat_low_other/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/cat_fp8/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/add_fp8/error/type", "as above"},
    {"autocast_cpu.json", "/facts/*/result/narrowing_mm_70000",
     "product of torch's kernel: 70000 becomes infinite in fp16 without a word. Here the cast says so "
     "(CastDecision::narrowed), tested by hand"},
    {"autocast_cpu.json", "/facts/*/result/narrowing_mm_70000_bf16_input", "as above"},
    {"autocast_cuda_tables.json", "/default_dtypes/mps", "no list of this device here"},
    {"autocast_cuda_tables.json", "/default_dtypes/hpu", "as above"},
    {"autocast_cuda_tables.json", "/default_dtypes/xla", "as above"},
    {"autocast_cuda_tables.json", "/default_dtypes/ipu", "as above"},
    {"autocast_cuda_tables.json", "/registered/AutocastMPS", "no list of this device here"},
    {"autocast_cuda_tables.json", "/header_lists",
     "the list in the header from which, with the operators that are registered, the record made its list cuda, which "
     "is matched"},
    {"autocast_cuda_tables.json", "/cuda_base_names", "the names in the list cuda without their overloads"},
    {"autocast_cuda_tables.json", "/cuda_minus_xpu", "what one device's registered list has and another's has not"},
    {"autocast_cuda_tables.json", "/cuda_minus_mps", "as above"},
    {"autocast_cuda_tables.json", "/mps_minus_cuda", "as above"},
    {"autocast_cuda_tables.json", "/cpu_minus_cuda", "as above"},
    {"autocast_cuda_tables.json", "/cuda_minus_cpu", "as above"},
    {"autocast_cuda_tables.json", "/test_lists",
     "names that torch's own tests call; the operators behind them stand in registered"},
    {"optimizers.json", "/clipping/*/foreach",
     "which of two implementations of torch was called: their results are the same, and ours is one"},
    {"training_run.json", "/recipe", "says how the run was made, in words"},
    {"training_run.json", "/runs/*/final_accuracy_all_rows_forward_in_storage_dtype",
     "share of right answers at the final weights, which are matched"},
    {"training_run.json", "/runs/*/against_fp64/max_relative_loss_difference",
     "a difference of two runs of the record, each of which is matched"},
    {"sharded_grad_scaler.json", "/two_ranks/*/ranks/*/errors",
     "torch's fused Adam raises at every step after an explicit unscale_, when it has moved the parameters: the flag's "
     "shape is [1]. Ours steps, and its parameters are torch's"},
};

}  // namespace

std::span<const TorchDifference> torch_differences() { return kDifferences; }

std::string torch_text() {
  std::string out =
      "What PyTorch 2.15.0 did was recorded, call by call: gradient scaler, its kernels, autocast, optimizers, "
      "clipping, training runs, sharded\n"
      "scaler. Tests hold ampcheck against every fact of these records but those below; each has its reason.\n";
  std::string_view file;
  for (const TorchDifference& d : kDifferences) {
    if (file != d.file) out += fmt::format("\n{}\n", std::string_view(d.file) == "*" ? "Every record" : d.file);
    file = d.file;
    out += fmt::format("  {}\n      {}\n", d.where, d.reason);
  }
  return out;
}

Json torch_json() {
  Json out = {{"schema", "ampcheck.torch_differences/1"}, {"text", torch_text()}, {"left_out", Json::array()}};
  for (const TorchDifference& d : kDifferences)
    out["left_out"].push_back({{"record", d.file}, {"where", d.where}, {"reason", d.reason}});
  return out;
}

}  // namespace ampcheck::tools
