// SPDX-License-Identifier: Apache-2.0
// .npy files: what is read is written and read back with the same bits.
#include "src/npy.h"

#include "src/error.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  try {
    const Tensor tensor = parse_npy_tensor(bytes, "file");
    fuzz::require(fuzz::same_bits(parse_npy_tensor(npy_bytes(tensor), "file"), tensor),
                  "a tensor comes back with its bits");
    parse_npy(bytes, "file");
  } catch (const Error&) {
  }
  return 0;
}
