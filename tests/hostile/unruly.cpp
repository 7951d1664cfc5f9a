// SPDX-License-Identifier: Apache-2.0
// A library that does something to its process outside of its kernels, as AMPCHECK_TEST_DEED says: as it is loaded, as
// it describes itself, or as it is unloaded. Its ops: `right` (y = 2 x), and `wrong` (3 x).
#include <ampcheck/ampcheck_op.h>

#include <unistd.h>

#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

bool asked(const char* deed) {
  const char* const wanted = std::getenv("AMPCHECK_TEST_DEED");
  return wanted != nullptr && std::strcmp(wanted, deed) == 0;
}

/// "load-exit", "load-crash", "load-hang" and so on.
void misbehave(const char* exits, const char* crashes, const char* hangs) {
  if (asked(exits)) _exit(0);
  if (asked(crashes)) std::raise(SIGSEGV);
  if (asked(hangs))
    for (;;) usleep(10'000);
}

void leave() {
  if (asked("atexit-exit")) _exit(0);
}

[[gnu::constructor]] void load() {
  misbehave("load-exit", "load-crash", "load-hang");
  if (asked("load-rounds")) std::fesetround(FE_UPWARD);
  std::atexit(leave);
}
[[gnu::destructor]] void unload() { misbehave("unload-exit", "unload-crash", "unload-hang"); }

float factors[] = {2, 3};
const char* const names[] = {"right", "wrong"};

std::int32_t scaled(const ac_tensor& from, const ac_tensor& to, const void* factor) {
  const std::int64_t n = from.dl.shape[0];
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<float*>(to.dl.data)[i] =
        *static_cast<const float*>(factor) * static_cast<const float*>(from.dl.data)[i];
  return 0;
}
std::int32_t forward(const ac_call* call) { return scaled(*call->inputs[0], *call->outputs[0], call->user); }
std::int32_t backward(const ac_call* call) { return scaled(*call->cotangents[0], *call->gradients[0], call->user); }

const ac_dim dims[] = {{sizeof(ac_dim), 0, "N", {5, 9, 2}, 0, 0}};
const ac_input inputs[] = {{sizeof(ac_input), 0, "x", "N", 0, 0, 0, 0, nullptr}};
const ac_output outputs[] = {{sizeof(ac_output), 0, "y", 0, 0, nullptr, nullptr}};
const ac_form forms[] = {{sizeof(ac_form), 0, nullptr, "y = 2 * x"}};
const std::int32_t storage[] = {AC_FP32};
const ac_contract contract = {sizeof(ac_contract), 1, storage, 0, 0, 0, 0, 0, 0, nullptr, 0, 0, 0};

}  // namespace

const ac_plugin* ampcheck_plugin_v1(void) {
  misbehave("describe-exit", "describe-crash", "describe-hang");
  static ac_op ops[std::size(factors)];
  for (std::size_t i = 0; i < std::size(factors); ++i) {
    ops[i] = {};
    ops[i].struct_size = sizeof(ac_op);
    ops[i].name = names[i];
    ops[i].user = &factors[i];
    ops[i].contract = &contract;
    ops[i].inputs = inputs;
    ops[i].input_count = 1;
    ops[i].outputs = outputs;
    ops[i].output_count = 1;
    ops[i].dims = dims;
    ops[i].dim_count = 1;
    ops[i].forms = forms;
    ops[i].form_count = 1;
    ops[i].forward = forward;
    ops[i].backward = backward;
  }
  static const ac_plugin plugin = {
      sizeof(ac_plugin), AMPCHECK_OP_ABI, "unruly", nullptr, static_cast<std::int32_t>(std::size(ops)), 0, ops};
  return &plugin;
}
