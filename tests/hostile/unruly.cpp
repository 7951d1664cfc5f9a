// SPDX-License-Identifier: Apache-2.0
// A library that does something to its process outside of its kernels, as AMPCHECK_TEST_DEED says: as it is loaded, as
// it describes itself, or as it is unloaded. Its ops: `right` (y = 2 x), and `wrong` (3 x). In the file that
// AMPCHECK_TEST_MARK names it leaves a line whenever its code runs: what runs, and in a process of which command line.
#include <ampcheck/ampcheck_op.h>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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

std::string content(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void leave_mark(const char* what) {
  const char* const path = std::getenv("AMPCHECK_TEST_MARK");
  if (path == nullptr) return;
  std::string line = std::string(what) + " in " + std::to_string(getpid()) + ":";
  for (const char c : content("/proc/self/cmdline")) line += c == '\0' ? ' ' : c;
  line += '\n';
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  [[maybe_unused]] const ssize_t put = write(file, line.data(), line.size());
  close(file);
}

/// Where the program lies in memory.
int take_base(dl_phdr_info* info, std::size_t, void* to) {
  *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
  return 1;  // it is the first one
}

/// From now on the program's own exit_code_of() returns 0, in the process that this library is loaded into.
void patch() {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const off_t size = lseek(file, 0, SEEK_END);
  const char* const program =
      static_cast<const char*>(mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file, 0));
  close(file);
  std::uintptr_t base = 0;
  dl_iterate_phdr(take_base, &base);
  Elf64_Ehdr head;
  std::memcpy(&head, program, sizeof head);
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  std::memcpy(sections.data(), program + head.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (std::size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, program + section.sh_offset + at, sizeof symbol);
      const char* const name = program + sections[section.sh_link].sh_offset + symbol.st_name;
      if (std::strstr(name, "12exit_code_of") == nullptr || symbol.st_value == 0) continue;
      const std::uintptr_t place = base + symbol.st_value, page = place & ~std::uintptr_t{4095};
      mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
      std::memcpy(reinterpret_cast<void*>(place), "\x31\xc0\xc3", 3);  // xor eax, eax; ret
      leave_mark("patched");
    }
  }
}

void leave() {
  if (asked("atexit-exit")) _exit(0);
}

[[gnu::constructor]] void load() {
  misbehave("load-exit", "load-crash", "load-hang");
  leave_mark("load");
  if (asked("load-patches")) patch();
  if (asked("load-rounds")) std::fesetround(FE_UPWARD);
  std::atexit(leave);
}
[[gnu::destructor]] void unload() {
  leave_mark("unload");
  misbehave("unload-exit", "unload-crash", "unload-hang");
}

float factors[] = {2, 3};
const char* const names[] = {"right", "wrong"};

std::int32_t scaled(const ac_tensor& from, const ac_tensor& to, const void* factor) {
  leave_mark("kernel");
  const std::int64_t n = from.dl.shape[0] * from.dl.shape[1];
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<float*>(to.dl.data)[i] =
        *static_cast<const float*>(factor) * static_cast<const float*>(from.dl.data)[i];
  return 0;
}
std::int32_t forward(const ac_call* call) { return scaled(*call->inputs[0], *call->outputs[0], call->user); }
std::int32_t backward(const ac_call* call) { return scaled(*call->cotangents[0], *call->gradients[0], call->user); }

const ac_dim dims[] = {{sizeof(ac_dim), 0, "N", {5, 9, 2}, 0, 0}, {sizeof(ac_dim), 0, "D", {7, 12, 5}, 0, 0}};
const ac_input inputs[] = {{sizeof(ac_input), 0, "x", "N D", 0, 0, 0, 0, nullptr}};
const ac_output outputs[] = {{sizeof(ac_output), 0, "y", 0, 0, nullptr, nullptr}};
const ac_form forms[] = {{sizeof(ac_form), 0, nullptr, "y = 2 * x"}};
const std::int32_t storage[] = {AC_FP32};
const ac_contract contract = {sizeof(ac_contract), 1, storage, 0, 0, 0, 0, 0, 0, nullptr, 0, 0, 0};

}  // namespace

const ac_plugin* ampcheck_plugin_v1(void) {
  misbehave("describe-exit", "describe-crash", "describe-hang");
  leave_mark("describe");
  if (asked("describe-patches")) patch();
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
    ops[i].dim_count = 2;
    ops[i].forms = forms;
    ops[i].form_count = 1;
    ops[i].forward = forward;
    ops[i].backward = backward;
  }
  static const ac_plugin plugin = {
      sizeof(ac_plugin), AMPCHECK_OP_ABI, "unruly", nullptr, static_cast<std::int32_t>(std::size(ops)), 0, ops};
  return &plugin;
}
