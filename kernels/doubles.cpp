// SPDX-License-Identifier: Apache-2.0
// The derivatives are those of the kernels in float beside these files, written once more for double: who changes one
// looks at the other. The zoo has wrong versions (checks/zoo/doubles.cpp).
#include "kernels/doubles.h"

#include "kernels/double_parts.h"

namespace ampcheck::kernels {

namespace doubles {

Numbers in(const KernelCall& call, const char* name) {
  if (call.device != Device::cpu)
    throw EnvironmentError("[kernel] storage in fp64 is on the CPU alone, got another device, want --device cpu");
  return to_doubles(call.at(name));
}

void out(const KernelCall& call, const std::string& name, const Numbers& values) {
  if (const TensorView* const tensor = call.find(name)) from_doubles(values, *tensor);
}

Numbers parameter(const KernelCall& call, const char* name, std::size_t count, double otherwise) {
  return call.find(name) == nullptr ? Numbers(count, otherwise) : in(call, name);
}

std::vector<std::int64_t> whole(const KernelCall& call, const char* name) {
  std::vector<std::int64_t> all;
  for (const double v : in(call, name)) all.push_back(static_cast<std::int64_t>(v));
  return all;
}

std::vector<std::size_t> extents(const KernelCall& call, const char* name) {
  std::vector<std::size_t> all;
  const Shape& shape = call.at(name).shape;
  for (int axis = 0; axis < shape.rank; ++axis) all.push_back(static_cast<std::size_t>(shape[axis]));
  return all;
}

}  // namespace doubles

Kernel double_kernel(std::string_view op) {
  for (const auto room : {doubles::elementwise_kernel, doubles::row_kernel, doubles::image_kernel})
    if (Kernel kernel = room(op); kernel.forward) return kernel;
  return {};
}

}  // namespace ampcheck::kernels
