// SPDX-License-Identifier: Apache-2.0
// safetensors files: as they are, and as a header up to the first zero byte with data behind it, which keeps the length
// right.
#include "src/safetensors.h"

#include "src/error.h"
#include "src/file_bytes.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

void read(std::string_view bytes) {
  try {
    const std::vector<NamedTensor> tensors = parse_safetensors(bytes, "file");
    const std::vector<NamedTensor> again = parse_safetensors(safetensors_bytes(tensors), "file");
    fuzz::require(again.size() == tensors.size(), "as many tensors come back");
    // Tensors without elements share their offsets, so only the names tell them apart.
    for (const NamedTensor& t : tensors) {
      bool found = false;
      for (const NamedTensor& a : again) found |= a.name == t.name && fuzz::same_bits(a.tensor, t.tensor);
      fuzz::require(found, "a tensor comes back with its name and bits");
    }
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  read(bytes);
  const std::size_t end = std::min(bytes.find('\0'), bytes.size());
  std::string framed;
  put(framed, static_cast<std::uint64_t>(end));
  read(framed + std::string(bytes.substr(0, end)) + std::string(bytes.substr(std::min(end + 1, bytes.size()))));
  return 0;
}
