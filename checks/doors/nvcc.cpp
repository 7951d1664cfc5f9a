// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// CUDA source to PTX by the toolkit that the user has. Nothing of it is kept: the text lives in a folder of this run.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "checks/doors/ptx_launcher.h"
#include "src/digest.h"
#include "src/spawn_actions.h"

extern char** environ;

namespace ampcheck::checks {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "AMPCHECK_PTX_FOLDER";  ///< of the run, for its workers

bool there(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

/// As a shell finds it: a name without a slash in PATH.
std::optional<std::string> program_named(const std::string& name) {
  if (name.find('/') != std::string::npos) return there(name) ? std::optional(name) : std::nullopt;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && there(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  return std::nullopt;
}

std::optional<std::string> find_nvcc() {
  if (const char* const named = std::getenv("NVCC"); named != nullptr && *named != '\0') {
    if (const std::optional<std::string> found = program_named(named)) return found;
    throw EnvironmentError(std::string("[NVCC] got '") + named +
                           "', which is no program, want the path of nvcc, or no such variable");
  }
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const home = std::getenv(variable); home != nullptr && there(fs::path(home) / "bin/nvcc"))
      return (fs::path(home) / "bin/nvcc").string();
  if (const std::optional<std::string> found = program_named("nvcc")) return found;
  const fs::path usual = "/usr/local/cuda/bin/nvcc";
  return there(usual) ? std::optional(usual.string()) : std::nullopt;
}

/// The folder of this run; the process that makes it removes it.
class RunFolder {
 public:
  RunFolder() {
    if (const char* const known = std::getenv(kFolder)) {
      path_ = known;
      return;
    }
    std::string name = (fs::temp_directory_path() / "ampcheck-ptx-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw EnvironmentError("[nvcc] cannot make a folder for its result");
    path_ = name;
    owner_ = getpid();
    setenv(kFolder, name.c_str(), 1);
  }
  ~RunFolder() {
    std::error_code ignored;
    if (owner_ == getpid()) fs::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  pid_t owner_ = -1;
};

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// Runs a program; what it says goes to a file.
int run_program(const std::vector<std::string>& words, const fs::path& said) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  SpawnActions actions;
  actions.open(0, "/dev/null", O_RDONLY);
  actions.open(1, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  actions.duplicate(1, 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  if (error != 0) throw EnvironmentError("[nvcc] got '" + words[0] + "', which cannot be started");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

std::string ptx_of_cuda(const std::string& path, const std::vector<std::string>& flags) {
  static RunFolder folder;
  if (std::error_code error; !fs::is_regular_file(path, error))
    throw EnvironmentError("[kernel] got '" + path + "', which is no file, want PTX or CUDA source");
  std::string key = fs::absolute(path).string();
  for (const std::string& flag : flags) key += "\n" + flag;
  const fs::path out = folder.path() / (digest_of(key).str() + ".ptx");
  if (std::error_code error; fs::is_regular_file(out, error)) return read_all(out);
  const auto nvcc = find_nvcc();
  if (!nvcc)
    throw EnvironmentError(
        "[kernel] got CUDA source '" + path +
        "' and no nvcc (NVCC, CUDA_HOME, PATH), want a CUDA toolkit, or PTX that nvcc -ptx -lineinfo made");
  const fs::path fresh = folder.path() / (digest_of(key + std::to_string(getpid())).str() + ".new"),
                 said = fresh.string() + ".log";
  std::vector<std::string> words = {*nvcc, "-ptx", "-lineinfo", "-arch=sm_80"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {path, "-o", fresh.string()});
  if (run_program(words, said) != 0) {
    std::string text = read_all(said);
    if (text.size() > 1500) text.resize(1500);
    throw EnvironmentError("[nvcc] cannot compile '" + path + "': " + text);
  }
  std::string text = read_all(fresh);
  std::error_code ignored;
  fs::rename(fresh, out, ignored);
  return text;
}

}  // namespace ampcheck::checks
