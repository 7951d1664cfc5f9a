// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/kernel.h"

namespace ampcheck::kernels {

std::int64_t equal_calls(const KernelFn& forward, const KernelCall& call, const std::vector<std::string>& written,
                         std::int64_t times) {
  std::vector<std::pair<const TensorView*, std::vector<std::byte>>> first;
  const auto size_of = [](const TensorView& view) {
    return static_cast<std::size_t>(view.count() * bytes(view.dtype));
  };
  for (std::int64_t done = 0; done < times; ++done) {
    forward(call);
    if (done == 0) {
      for (const std::string& name : written) {
        const TensorView& view = call.at(name);
        const auto* const data = view.as<const std::byte>();
        first.emplace_back(&view, std::vector<std::byte>(data, data + size_of(view)));
      }
      continue;
    }
    for (const auto& [view, bits] : first)
      if (!bits.empty() && std::memcmp(view->data, bits.data(), bits.size()) != 0) return done;
  }
  return times;
}

}  // namespace ampcheck::kernels
