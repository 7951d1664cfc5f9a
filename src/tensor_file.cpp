// SPDX-License-Identifier: Apache-2.0
#include "src/tensor_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/npy.h"
#include "src/npz.h"

namespace ampcheck {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostFiles = 4096;  // of a folder

/// Fowler, Noll, Vo: FNV-1a, 64 bits.
class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::string hex() const {
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[(state_ >> shift) & 15];
    return out;
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

std::vector<fs::path> files_of(const std::string& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    if ((extension == ".safetensors" || extension == ".npz" || extension == ".npy") && entry.is_regular_file(error))
      out.push_back(entry.path());
  }
  if (error) throw Error("[tensors] '" + folder + "' cannot be read: " + error.message());
  if (out.empty()) throw Error("[tensors] '" + folder + "', got a folder without *.safetensors, *.npz and *.npy");
  if (out.size() > kMostFiles)
    throw Error("[tensors] '" + folder + "', got " + std::to_string(out.size()) + " files, want at most " +
                std::to_string(kMostFiles));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

const Tensor* TensorFile::find(std::string_view name) const {
  for (const NamedTensor& tensor : tensors)
    if (tensor.name == name) return &tensor.tensor;
  return nullptr;
}

std::string TensorFile::names() const {
  constexpr std::size_t kShown = 32;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, tensors.size()); ++i)
    out += (i == 0 ? "" : ", ") + quoted_text(tensors[i].name);
  if (tensors.size() > kShown) out += " and " + std::to_string(tensors.size() - kShown) + " more";
  return out.empty() ? "no tensors" : out;
}

std::string TensorFile::digest() const {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  Digest digest;
  for (const NamedTensor* named : order) {
    const Tensor& tensor = named->tensor;
    digest.add(named->name + "=" + name(tensor.dtype()) + tensor.shape().str() + ";");
    digest.add({static_cast<const char*>(tensor.data()),
                static_cast<std::size_t>(tensor.count()) * static_cast<std::size_t>(bytes(tensor.dtype()))});
  }
  return digest.hex();
}

std::vector<NamedTensor> parse_tensors(std::string_view bytes, const std::string& where, const std::string& stem) {
  if (bytes.starts_with("PK\x03\x04") || bytes.starts_with("PK\x05\x06")) return parse_npz(bytes, where);
  if (!bytes.starts_with("\x93NUMPY")) return parse_safetensors(bytes, where);
  require_tensor_name(stem, {}, "[npy] '" + where + "': ");
  return {{stem, parse_npy_tensor(bytes, where)}};
}

TensorFile read_tensors(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw MissingFileError("[tensors] got '" + path +
                           "', which is not there, want a safetensors, .npz or .npy file, or a folder of them");
  TensorFile out{path, {}};
  const std::vector<fs::path> files = fs::is_directory(status) ? files_of(path) : std::vector<fs::path>{path};
  std::set<std::string> names;  // a file may hold very many
  for (const fs::path& file : files)
    for (NamedTensor& tensor :
         parse_tensors(read_bytes(file.string(), "tensors"), file.string(), file.stem().string())) {
      if (!names.insert(tensor.name).second)
        throw Error("[tensors] '" + path + "', got the tensor " + quoted_text(tensor.name) + " in two files");
      out.tensors.push_back(std::move(tensor));
    }
  return out;
}

}  // namespace ampcheck
