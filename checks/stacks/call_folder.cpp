// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/call_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck::checks::stacks {

namespace fs = std::filesystem;

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool holds_tensors(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".safetensors" || extension == ".npz" || extension == ".npy";
}

struct Listed {
  std::vector<fs::path> tensors, folders, torch;
  bool recorded = false;  ///< metadata.jsonl lies here
};

Listed entries_of(const fs::path& folder) {
  Listed out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error))
      out.folders.push_back(entry.path());
    else if (holds_tensors(entry.path()))
      out.tensors.push_back(entry.path());
    else if (entry.path().extension() == ".pt" || entry.path().extension() == ".pth")
      out.torch.push_back(entry.path());
    out.recorded |= entry.path().filename() == "metadata.jsonl";
  }
  if (error) throw Error("[diagnose] '" + folder.string() + "' cannot be read: " + error.message());
  const auto less = [](const fs::path& a, const fs::path& b) { return natural_less(a.string(), b.string()); };
  for (std::vector<fs::path>* const list : {&out.tensors, &out.folders, &out.torch})
    std::sort(list->begin(), list->end(), less);
  return out;
}

[[noreturn]] void refuse_torch(const fs::path& file) {
  throw Error("[diagnose] '" + file.string() +
              "', got a pickle of torch (.pt), which is a program and is not run here, want safetensors: " +
              how_to_convert((file.parent_path() / "*.pt").string()));
}

/// "rmsnorm_call0001" of "20260801_101010_123_pid77_rmsnorm_call0001".
std::string without_time(const std::string& folder) {
  const std::size_t pid = folder.find("_pid");
  if (pid == std::string::npos) return folder;
  std::size_t at = pid + 4;
  while (at < folder.size() && is_digit(folder[at])) ++at;
  return at < folder.size() && folder[at] == '_' ? folder.substr(at + 1) : folder;
}

std::string last_line(const std::string& text) {
  std::size_t end = text.size();
  while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r')) --end;
  const std::size_t begin = text.rfind('\n', end == 0 ? 0 : end - 1);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

/// One call of FlashInfer's flight recorder; false where the call did not return.
bool recorded_call(const fs::path& folder, DumpedCall& out, std::vector<std::string>& notes) {
  const Listed files = entries_of(folder);
  if (files.tensors.empty() && !files.torch.empty()) refuse_torch(files.torch.front());
  const std::string where = (folder / "metadata.jsonl").string();
  const nlohmann::json record = nlohmann::json::parse(last_line(read_bytes(where, "diagnose")), nullptr, false);
  if (!record.is_object()) throw Error("[diagnose] '" + where + "', got a last line that is no JSON object");
  out.name = without_time(folder.filename().string());
  out.function = record.value("function_name", "");
  if (const auto given = record.find("input_metadata"); given != record.end() && given->is_object())
    for (auto item = given->begin(); item != given->end(); ++item)
      if (item->is_number()) out.numbers[item.key()] = item->get<double>();
  for (const fs::path& file : files.tensors) out.files.push_back(file.string());
  if (record.value("execution_status", "completed") == "completed") return true;
  notes.push_back("'" + out.name + "' has inputs and no outputs: the call did not return");
  return false;
}

CallFolder of_flashinfer(const std::string& path, const Listed& listed) {
  CallFolder out{path, "FlashInfer dump", {}, {}};
  for (const fs::path& folder : listed.folders) {
    if (!fs::exists(folder / "metadata.jsonl")) continue;
    DumpedCall call;
    if (recorded_call(folder, call, out.notes)) out.calls.push_back(std::move(call));
  }
  return out;
}

/// Tensors "layers.0.norm.x", "layers.0.norm.y" of one file are those of a call "layers.0.norm".
CallFolder of_file(const std::string& path) {
  CallFolder out{path, "tensors", {}, {}};
  const TensorFile file = read_tensors(path);
  std::vector<std::string> prefixes;
  bool all = true;
  for (const NamedTensor& tensor : file.tensors) {
    const std::size_t end = tensor.name.find_last_of("./");
    all &= end != std::string::npos;
    const std::string prefix = end == std::string::npos ? "" : tensor.name.substr(0, end + 1);
    if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) prefixes.push_back(prefix);
  }
  if (!all || prefixes.empty()) {
    out.calls.push_back({fs::path(path).stem().string(), "", {path}, ""});
    return out;
  }
  std::sort(prefixes.begin(), prefixes.end(), natural_less);
  for (const std::string& prefix : prefixes)
    out.calls.push_back({prefix.substr(0, prefix.size() - 1), "", {path}, prefix});
  return out;
}

}  // namespace

bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      std::size_t x = i, y = j;
      while (x < a.size() && is_digit(a[x])) ++x;
      while (y < b.size() && is_digit(b[y])) ++y;
      const auto number = [](const std::string& text, std::size_t from, std::size_t to) {
        while (from + 1 < to && text[from] == '0') ++from;
        return text.substr(from, to - from);
      };
      const std::string m = number(a, i, x), n = number(b, j, y);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
      i = x;
      j = y;
      continue;
    }
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return a.size() - i < b.size() - j;
}

CallFolder list_calls(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (fs::path(path).extension() == ".pt" || fs::path(path).extension() == ".pth") refuse_torch(path);
    return of_file(path);
  }
  const Listed listed = entries_of(path);
  if (listed.recorded) {
    CallFolder out{path, "FlashInfer dump", {}, {}};
    DumpedCall call;
    if (recorded_call(path, call, out.notes)) out.calls.push_back(std::move(call));
    return out;
  }
  for (const fs::path& folder : listed.folders)
    if (fs::exists(folder / "metadata.jsonl")) return of_flashinfer(path, listed);
  CallFolder out{path, "tensors", {}, {}};
  const bool arrays = std::any_of(listed.tensors.begin(), listed.tensors.end(),
                                  [](const fs::path& file) { return file.extension() == ".npy"; });
  if (arrays || listed.tensors.size() == 1) {  // one call, as check --dump reads it
    DumpedCall call{fs::path(path).filename().string(), "", {}, ""};
    if (call.name.empty()) call.name = fs::path(path).parent_path().filename().string();
    if (listed.tensors.size() == 1 && !arrays) call.name = listed.tensors.front().stem().string();
    for (const fs::path& file : listed.tensors) call.files.push_back(file.string());
    out.calls.push_back(std::move(call));
  } else {
    for (const fs::path& file : listed.tensors) out.calls.push_back({file.stem().string(), "", {file.string()}, ""});
  }
  for (const fs::path& folder : listed.folders) {
    const Listed inside = entries_of(folder);
    if (inside.tensors.empty()) continue;
    DumpedCall call{folder.filename().string(), "", {}, ""};
    for (const fs::path& file : inside.tensors) call.files.push_back(file.string());
    out.calls.push_back(std::move(call));
  }
  if (out.calls.empty() && !listed.torch.empty()) refuse_torch(listed.torch.front());
  if (out.calls.empty())
    throw Error("[diagnose] '" + path +
                "', got a folder without tensors, want *.safetensors, *.npz or *.npy, a "
                "folder for each call, FlashInfer's dumps (metadata.jsonl) or msprobe's (dump.json)");
  std::sort(out.calls.begin(), out.calls.end(),
            [](const DumpedCall& a, const DumpedCall& b) { return natural_less(a.name, b.name); });
  return out;
}

TensorFile tensors_of(const DumpedCall& call) {
  TensorFile out{call.files.empty() ? call.name : call.files.front(), {}};
  for (const std::string& path : call.files)
    for (NamedTensor& tensor : read_tensors(path).tensors) {
      if (!tensor.name.starts_with(call.prefix)) continue;
      std::string name = tensor.name.substr(call.prefix.size());
      if (!call.prefix.empty() && name.find_first_of("./") != std::string::npos) continue;  // of a call below it
      require_tensor_name(name, out.tensors, "[diagnose] '" + path + "'");
      out.tensors.push_back({std::move(name), std::move(tensor.tensor)});
    }
  return out;
}

std::string known_formula(const DumpedCall& call) {
  const bool gemma = call.function == "gemma_rmsnorm";
  if (call.function != "rmsnorm" && !gemma) return "";
  double eps = 1e-6;  // what the function has where none is given
  for (const char* const key : {"arg_2", "kwarg_eps"})
    if (const auto found = call.numbers.find(key); found != call.numbers.end()) eps = found->second;
  return fmt::format("result = arg_0 * rsqrt(mean(arg_0^2, -1) + {}) * {}", eps, gemma ? "(1 + arg_1)" : "arg_1");
}

std::string how_to_convert(const std::string& where) {
  return "python -c \"import sys, torch, safetensors.torch as s; [s.save_file({k: v.contiguous() for k, v in "
         "torch.load(p, weights_only=True).items()}, p[:-3] + '.safetensors') for p in sys.argv[1:]]\" " +
         where + " (or record anew with FLASHINFER_DUMP_SAFETENSORS=1)";
}

}  // namespace ampcheck::checks::stacks
