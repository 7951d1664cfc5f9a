// SPDX-License-Identifier: Apache-2.0
// Ops of y = 2 x, each of which does something to its process where x has 17 rows, and is right elsewhere.
#include <ampcheck/ampcheck_op.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace {

volatile int sink = 0;
volatile int* volatile nowhere = nullptr;

// Recursion that no compiler unrolls.
int deep(int n) {
  volatile char frame[4096];
  std::memset(const_cast<char*>(frame), n & 1, sizeof frame);
  return sink == 1 ? 0 : deep(n + 1) + frame[n % 4096];
}

std::int32_t segfault(float*, std::int64_t) {
  *nowhere = 1;
  return 0;
}
std::int32_t aborts(float*, std::int64_t) { std::abort(); }
std::int32_t raises(float*, std::int64_t) {
  std::raise(SIGSEGV);
  return 0;
}
std::int32_t kills_its_judge(float*, std::int64_t) {
  kill(getppid(), SIGKILL);
  pause();
  return 0;
}
/// Asks for more than there is, and does not look whether it got it.
std::int32_t trusts_malloc(float*, std::int64_t) {
  auto* volatile piece = static_cast<volatile char*>(std::malloc(std::size_t{1} << 46));
  piece[0] = 1;
  return 0;
}
std::int32_t exits(float*, std::int64_t) { std::exit(0); }
std::int32_t loops(float*, std::int64_t) {
  std::signal(SIGTERM, SIG_IGN);
  for (;;) sink = 0;
}
std::int32_t overflows_stack(float*, std::int64_t) { return deep(0); }
std::int32_t takes_memory(float*, std::int64_t) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  for (int i = 0; i < 1000; ++i) {
    auto* volatile piece = static_cast<volatile char*>(std::malloc(kPiece));  // volatile: or compilers leave it out
    if (piece == nullptr) return 12;
    piece[0] = 1;  // one page: what is asked for, not what is used, is limited
  }
  return 0;
}
std::int32_t closes_descriptors(float*, std::int64_t) {
  for (int fd = 0; fd < 64; ++fd) close(fd);
  return 0;
}
std::int32_t prints(float*, std::int64_t) {
  std::printf("<script>\x1b[31mhello\n");
  std::fflush(stdout);
  return 0;
}
std::int32_t forks(float*, std::int64_t) {
  fork();
  return 0;
}
std::int32_t leaves_a_child(float*, std::int64_t) {
  if (fork() == 0) {
    sleep(100);
    _exit(0);
  }
  std::abort();
}
std::int32_t throws(float*, std::int64_t) { throw 42; }
std::int32_t writes_after(float* y, std::int64_t n) {
  y[n] = 1;
  return 0;
}
std::int32_t writes_before(float* y, std::int64_t) {
  y[-1] = 1;
  return 0;
}
std::int32_t returns_garbage(float*, std::int64_t) { return -123456789; }
std::int32_t floods(float*, std::int64_t) {
  for (;;) std::printf("all work and no play makes a dull kernel\n");
}

/// Behind the guards: what follows there may be anything.
std::int32_t writes_far_behind(float* y, std::int64_t n) {
  y[n + 2048] = 1;
  return 0;
}
std::int32_t reads_far_before(float* y, std::int64_t) {
  volatile float far = *(y - 3000);
  sink = far > 0 ? 0 : sink;
  return 0;
}
/// Says on every descriptor what a host might take for a pass, and ends as if all were well.
std::int32_t answers_itself(float*, std::int64_t) {
  const char nothing[5 * sizeof(std::uint64_t)] = {}, finished[] = {'f', 0};
  const std::uint64_t size = sizeof nothing;
  for (int fd = 1; fd < 64; ++fd)
    for (const auto& [text, bytes] : {std::pair{reinterpret_cast<const char*>(&size), sizeof size},
                                      std::pair{nothing, sizeof nothing}, std::pair{finished, sizeof finished}})
      if (write(fd, text, bytes) < 0) break;
  _exit(0);
}
std::int32_t leaves_state(float*, std::int64_t) {
  std::fesetround(FE_TOWARDZERO);
  std::setlocale(LC_ALL, "C.UTF-8");
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  return 0;
}
/// Its process id is in the file of the mark.
std::int32_t leaves_a_session(float*, std::int64_t) {
  if (fork() != 0) return 0;
  setsid();
  if (fork() != 0) _exit(0);
  if (const char* mark = std::getenv("AMPCHECK_TEST_MARK"))
    if (std::FILE* file = std::fopen(mark, "a")) {
      std::fprintf(file, "%d\n", static_cast<int>(getpid()));
      std::fclose(file);
    }
  sleep(100);
  _exit(0);
}

thread_local const ac_call* current = nullptr;

/// Co-operates: works until the host says that nobody wants the result, and leaves a mark that it was told.
std::int32_t returns_when_asked(float*, std::int64_t) {
  while (current->host->should_cancel(current->host->context) == 0) usleep(1000);
  if (const char* mark = std::getenv("AMPCHECK_TEST_MARK")) std::fclose(std::fopen(mark, "w"));
  current->host->set_error(current->host->context, "cancelled");
  return 5;
}

using Deed = std::int32_t (*)(float*, std::int64_t);

std::int32_t doubled(const ac_tensor& from, const ac_tensor& to, const ac_call* call) {
  const std::int64_t rows = from.dl.shape[0], n = rows * from.dl.shape[1];
  auto* y = static_cast<float*>(to.dl.data);
  current = call;
  for (std::int64_t i = 0; i < n; ++i) y[i] = 2 * static_cast<const float*>(from.dl.data)[i];
  return rows == 17 && call->outputs != nullptr ? (*static_cast<Deed*>(call->user))(y, n) : 0;
}
std::int32_t forward(const ac_call* call) { return doubled(*call->inputs[0], *call->outputs[0], call); }
std::int32_t backward(const ac_call* call) { return doubled(*call->cotangents[0], *call->gradients[0], call); }

Deed deeds[] = {segfault,
                aborts,
                exits,
                loops,
                overflows_stack,
                takes_memory,
                closes_descriptors,
                prints,
                forks,
                leaves_a_child,
                throws,
                writes_after,
                writes_before,
                returns_garbage,
                floods,
                returns_when_asked,
                writes_far_behind,
                reads_far_before,
                answers_itself,
                leaves_state,
                leaves_a_session,
                raises,
                kills_its_judge,
                trusts_malloc};
const char* const names[] = {"segfault",
                             "aborts",
                             "exits",
                             "loops",
                             "overflows_stack",
                             "takes_memory",
                             "closes_descriptors",
                             "prints",
                             "forks",
                             "leaves_a_child",
                             "throws",
                             "writes_after",
                             "writes_before",
                             "returns_garbage",
                             "floods",
                             "returns_when_asked",
                             "writes_far_behind",
                             "reads_far_before",
                             "answers_itself",
                             "leaves_state",
                             "leaves_a_session",
                             "raises",
                             "kills_its_judge",
                             "trusts_malloc"};
static_assert(std::size(deeds) == std::size(names));

const ac_dim dims[] = {{sizeof(ac_dim), 0, "N", {5, 9, 2}, 0, 0}, {sizeof(ac_dim), 0, "D", {7, 12, 5}, 0, 0}};
const ac_input inputs[] = {{sizeof(ac_input), 0, "x", "N D", 0, 0, 0, 0, nullptr}};
const ac_output outputs[] = {{sizeof(ac_output), 0, "y", 0, 0, nullptr, nullptr}};
const ac_form forms[] = {{sizeof(ac_form), 0, nullptr, "y = 2 * x"}};
const std::int32_t storage[] = {AC_FP32};
const ac_contract contract = {sizeof(ac_contract), 1, storage, 0, 0, 0, 0, 0, 0, nullptr, 0, 0, 0};

}  // namespace

const ac_plugin* ampcheck_plugin_v1(void) {
  static ac_op ops[std::size(deeds)];
  for (std::size_t i = 0; i < std::size(deeds); ++i) {
    ops[i] = {};
    ops[i].struct_size = sizeof(ac_op);
    ops[i].name = names[i];
    ops[i].user = &deeds[i];
    ops[i].contract = &contract;
    ops[i].inputs = inputs;
    ops[i].input_count = 1;
    ops[i].outputs = outputs;
    ops[i].output_count = 1;
    ops[i].dims = dims;
    ops[i].dim_count = 2;
    ops[i].forms = forms;
    ops[i].form_count = 1;
    ops[i].forward = forward;
    ops[i].backward = backward;
  }
  static const ac_plugin plugin = {
      sizeof(ac_plugin), AMPCHECK_OP_ABI, "hostile", nullptr, static_cast<std::int32_t>(std::size(deeds)), 0, ops};
  return &plugin;
}
