// SPDX-License-Identifier: Apache-2.0
// The numbers are those of the kernel's own interface (include/uapi/linux/landlock.h): headers of an older kernel lack
// the newer rights.
#include "tools/workers/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/toml_file.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;  // the same on every machine
constexpr std::uint64_t kExecute = 1, kWriteFile = 2, kReadFile = 4, kReadDir = 8, kTruncate = 1 << 14;
constexpr std::uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate;

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kMachine = 0;
#endif

/// Sockets; io_uring, which opens sockets by itself; what reads or changes other processes; what makes namespaces,
/// mounts, keys and programs of the kernel; handles of files, the clock and the machine itself.
constexpr std::array kDenied = {SYS_socket,
                                SYS_io_uring_setup,
                                SYS_io_uring_enter,
                                SYS_io_uring_register,
                                SYS_ptrace,
                                SYS_process_vm_readv,
                                SYS_process_vm_writev,
                                SYS_pidfd_getfd,
                                SYS_unshare,
                                SYS_setns,
                                SYS_mount,
                                SYS_umount2,
                                SYS_pivot_root,
                                SYS_chroot,
                                SYS_add_key,
                                SYS_request_key,
                                SYS_keyctl,
                                SYS_perf_event_open,
                                SYS_bpf,
                                SYS_init_module,
                                SYS_finit_module,
                                SYS_userfaultfd,
                                SYS_open_by_handle_at,
                                SYS_reboot,
                                SYS_settimeofday,
                                SYS_clock_settime};

[[noreturn]] void fail(const std::string& what) {
  throw EnvironmentError("[--sandbox] " + what + ": " + std::strerror(errno));
}

/// Version of Landlock's interface; below 1: there is none.
long landlock_version() { return syscall(kCreateRuleset, nullptr, 0, 1); }

/// All rights to files that the version knows.
std::uint64_t all_rights(long version) {
  constexpr std::array<std::uint64_t, 5> kRights = {(1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1,
                                                    (1 << 16) - 1};
  return kRights[static_cast<std::size_t>(std::min(version, 5L) - 1)];
}

void allow(int ruleset, const std::string& path, std::uint64_t rights) {
  const int handle = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (handle < 0) return;  // what is not there need not be allowed
  struct stat facts {};
  if (fstat(handle, &facts) == 0 && !S_ISDIR(facts.st_mode)) rights &= kOfFiles;
  struct __attribute__((packed)) {
    std::uint64_t rights;
    std::int32_t handle;
  } const rule{rights, handle};
  const long done = syscall(kAddRule, ruleset, 1, &rule, 0);
  close(handle);
  if (done != 0) fail("a rule for '" + path + "'");
}

bool is_library(const fs::path& file) { return file.filename().string().find(".so") != std::string::npos; }

/// The library, and those beside it that it may need.
void add_library(const fs::path& library, std::vector<std::string>& out) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(library, error);
  out.push_back(real.string());
  for (const fs::directory_entry& entry : fs::directory_iterator(real.parent_path(), error))
    if (is_library(entry.path())) out.push_back(entry.path().string());
}

/// What a TOML file of launchers names, if it can be read; whoever loads it says what is wrong with it.
void add_library_of(const std::string& toml, std::vector<std::string>& out) {
  try {
    const TomlFile file(read_bytes(toml, "launchers"), toml);
    for (const TomlEntry& entry : file.root().entries) {
      if (entry.key != "library" || entry.value.kind != TomlNode::Kind::text) continue;
      const fs::path named = entry.value.text;
      add_library(named.is_relative() ? fs::path(toml).parent_path() / named : named, out);
    }
  } catch (const Error&) {
  }
}

std::vector<std::string> readable(const std::string& library) {
  std::vector<std::string> out = {"/usr",
                                  "/lib",
                                  "/lib64",
                                  "/bin",
                                  "/opt",
                                  "/etc/ld.so.cache",
                                  "/etc/localtime",
                                  "/proc/cpuinfo",
                                  "/proc/meminfo",
                                  "/proc/stat",
                                  "/proc/filesystems",
                                  "/proc/self/maps",
                                  "/proc/self/status",
                                  "/proc/self/exe",
                                  "/sys/devices/system",
                                  "/dev/urandom",
                                  "/dev/zero",
                                  "/dev/full"};
  add_library(library, out);
  if (library.ends_with(".toml")) add_library_of(library, out);
  if (const char* const given = std::getenv("LD_LIBRARY_PATH")) {
    std::string_view rest = given;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) out.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return out;
}

void restrict_files(const std::string& library) {
  const long version = landlock_version();
  const std::uint64_t every = all_rights(version);
  // Files; binding and connecting of TCP ports; signals and abstract sockets.
  const std::array<std::uint64_t, 3> handled = {every, version >= 4 ? 3u : 0u, version >= 6 ? 3u : 0u};
  const std::size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  const int ruleset = static_cast<int>(syscall(kCreateRuleset, handled.data(), size, 0));
  if (ruleset < 0) fail("a set of rules");
  for (const std::string& path : readable(library)) allow(ruleset, path, kExecute | kReadFile | kReadDir);
  allow(ruleset, "/dev/null", (kReadFile | kWriteFile | kTruncate) & every);
  if (syscall(kRestrictSelf, ruleset, 0) != 0) fail("the restriction");
  close(ruleset);
}

/// Calls of another machine and those of the list fail with EACCES.
void restrict_calls() {
  constexpr auto kRefuse = SECCOMP_RET_ERRNO | (EACCES & SECCOMP_RET_DATA);
  const auto load = [](std::size_t offset) -> sock_filter {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  std::vector<sock_filter> lines = {load(offsetof(seccomp_data, arch)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0),
                                    BPF_STMT(BPF_RET | BPF_K, kRefuse),
                                    load(offsetof(seccomp_data, nr)),
                                    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),  // calls of x32
                                    BPF_STMT(BPF_RET | BPF_K, kRefuse)};
  for (const long call : kDenied) {
    lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    lines.push_back(BPF_STMT(BPF_RET | BPF_K, kRefuse));
  }
  lines.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(lines.size()), lines.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
    fail("the filter of system calls");
}

void leave_out_secrets() {
  constexpr std::array<std::string_view, 8> kKept = {
      "PATH=", "LANG=", "LC_", "LD_LIBRARY_PATH=", "OMP_", "MKL_", "TZ=", "AMPCHECK_"};
  std::vector<std::string> names;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const bool kept = std::any_of(kKept.begin(), kKept.end(), [&](auto start) { return variable.starts_with(start); });
    if (!kept) names.emplace_back(variable.substr(0, variable.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace

void require_sandbox() {
  if (kMachine == 0) throw EnvironmentError("[--sandbox] got a machine of another kind, want x86-64 or arm64");
  if (landlock_version() < 1)
    throw EnvironmentError(std::string("[--sandbox] got a kernel without Landlock (") + std::strerror(errno) +
                           "), want Linux 5.13 or later with 'landlock' in /sys/kernel/security/lsm");
}

void enter_sandbox(const std::string& library) {
  require_sandbox();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("no_new_privs");
  restrict_files(library);
  restrict_calls();
  leave_out_secrets();
}

}  // namespace ampcheck::tools
