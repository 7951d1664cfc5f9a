// SPDX-License-Identifier: Apache-2.0
#include "checks/case/launch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "src/error.h"

namespace ampcheck::checks {
namespace {

constexpr Layout kLayouts[] = {Layout::dense, Layout::padded, Layout::last2, Layout::transposed};
const char* text(Layout layout) {
  switch (layout) {
    case Layout::dense: return "dense";
    case Layout::padded: return "padded";
    case Layout::last2: return "last2";
    case Layout::transposed: return "transposed";
    case Layout::expanded: return "expanded";
  }
  return "";
}

std::vector<double> counting(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

/// Calls a kernel that reads x and writes y, both of this layout, and returns what was seen.
LaunchResult run(Layout layout, Dtype dtype, const kernels::KernelFn& kernel, bool in_place = false) {
  LaunchTensors tensors;
  GuardedTensor x(dtype, {3, 4}, layout, poison(dtype, 0));
  x.assign(counting({3, 4}));
  tensors.read.emplace("x", std::move(x));
  if (in_place)
    tensors.in_place["y"] = "x";
  else
    tensors.write.emplace("y", GuardedTensor(dtype, {3, 4}, layout, poison(dtype, 0)));
  return launch(kernel, tensors, Attributes{}, Device::cpu);
}
void twice(const kernels::KernelCall& call) {
  std::vector<double> values = to_doubles(call.at("x"));
  for (double& v : values) v *= 2;
  from_doubles(values, call.at("y"));
}
/// Overwrites the element at an offset (in elements) from the first one of a tensor.
void smash(const TensorView& view, std::int64_t offset) {
  const auto size = static_cast<std::int64_t>(bytes(view.dtype));
  std::memset(view.as<std::byte>() + offset * size, 0x11, static_cast<std::size_t>(size));
}

TEST(GuardedTensor, EveryLayoutRoundTrips) {
  for (const Layout layout : kLayouts)
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp64, Dtype::i64, Dtype::u8})
      for (const Shape& shape :
           {Shape{3, 4}, Shape{5}, Shape{}, Shape{2, 3, 2}, Shape{0, 4}, Shape{4, 0}, Shape{1, 1}}) {
        GuardedTensor tensor(dtype, shape, layout, poison(dtype, 1));
        tensor.assign(counting(shape));
        EXPECT_EQ(to_doubles(tensor.view()), counting(shape))
            << text(layout) << " " << shape.str() << " " << name(dtype);
        EXPECT_TRUE(tensor.same_bytes(tensor.clone()));
      }
}

TEST(GuardedTensor, LayoutsDiffer) {
  const auto strides = [](Layout layout) { return GuardedTensor(Dtype::fp32, {3, 4}, layout, 0).view().strides.str(); };
  EXPECT_EQ(strides(Layout::dense), "[4,1]");
  EXPECT_EQ(strides(Layout::padded), "[7,1]");
  EXPECT_EQ(strides(Layout::last2), "[8,2]");
  EXPECT_EQ(strides(Layout::transposed), "[1,3]");
  EXPECT_EQ(strides(Layout::expanded), "[1,0]");
  // Only a slice starts off the alignment.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(GuardedTensor(Dtype::fp32, {3, 4}, Layout::dense, 0).view().data) % 64,
            0u);
  EXPECT_NE(reinterpret_cast<std::uintptr_t>(GuardedTensor(Dtype::fp32, {3, 4}, Layout::padded, 0).view().data) % 64,
            0u);
}

TEST(GuardedTensor, GuardsHoldThePoison) {
  const GuardedTensor tensor(Dtype::bf16, {3, 4}, Layout::dense, poison(Dtype::bf16, 1));
  EXPECT_GE(tensor.bytes().size(), 2 * 4096 + 24u);
  std::uint16_t first = 0, last = 0;
  std::memcpy(&first, tensor.bytes().data(), 2);
  std::memcpy(&last, tensor.bytes().data() + tensor.bytes().size() - 2, 2);
  EXPECT_EQ(first, poison(Dtype::bf16, 1));
  EXPECT_EQ(last, poison(Dtype::bf16, 1));
}

TEST(GuardedTensor, CloneHasItsOwnMemory) {
  const GuardedTensor a(Dtype::fp32, {3, 4}, Layout::padded, 0), b = a.clone();
  smash(b.view(), 0);
  EXPECT_FALSE(a.same_bytes(b));
  EXPECT_EQ(b.changed_outside(a), 0);
  smash(b.view(), 4);  // in the gap after the first row
  EXPECT_EQ(b.changed_outside(a), 4);
}

TEST(Poison, TwoDifferentNaNs) {
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2, Dtype::i32,
                            Dtype::i64, Dtype::u8}) {
    EXPECT_NE(poison(dtype, 0), poison(dtype, 1)) << name(dtype);
    if (!is_float(dtype)) continue;
    for (const int which : {0, 1}) {
      const GuardedTensor tensor(dtype, {2}, Layout::dense, poison(dtype, which));
      for (const double v : to_doubles(tensor.view())) EXPECT_TRUE(std::isnan(v)) << name(dtype) << " " << which;
      EXPECT_EQ(bits_at(tensor.view(), 1), poison(dtype, which));
    }
  }
}

TEST(Launch, ARightKernelLeavesNoTrace) {
  for (const Layout layout : kLayouts)
    for (const bool in_place : {false, true}) {
      const LaunchResult result = run(layout, Dtype::bf16, twice, in_place);
      EXPECT_TRUE(result.overrun.empty()) << text(layout);
      EXPECT_TRUE(result.clobbered.empty()) << text(layout);
      std::vector<double> want = counting({3, 4});
      for (double& v : want) v *= 2;
      EXPECT_EQ(to_doubles(result.written.at("y").view()), want) << text(layout);
    }
}

TEST(Launch, SeesOneElementBeforeAndAfter) {
  for (const Layout layout : kLayouts)
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
      for (const bool before : {true, false}) {
        const LaunchResult result = run(layout, dtype, [&](const kernels::KernelCall& call) {
          twice(call);
          const TensorView& y = call.at("y");
          smash(y, before ? -1 : y.offset(y.count() - 1) + 1);
        });
        EXPECT_EQ(result.overrun, std::vector<std::string>{"y"}) << text(layout) << (before ? " before" : " after");
        EXPECT_TRUE(result.clobbered.empty());
      }
}

TEST(Launch, SeesAWriteIntoAStrideGap) {
  for (const auto& [layout, gap] : {std::pair{Layout::padded, 4}, std::pair{Layout::padded, 6},
                                    std::pair{Layout::last2, 1}, std::pair{Layout::last2, 7}}) {
    const LaunchResult result = run(layout, Dtype::fp16, [at = gap](const kernels::KernelCall& call) {
      twice(call);
      smash(call.at("y"), at);
    });
    EXPECT_EQ(result.overrun, std::vector<std::string>{"y"}) << text(layout) << " " << gap;
  }
}

TEST(Launch, SeesChangedInputs) {
  for (const std::int64_t at : {0, 11, -1, 12}) {  // elements, and the guards of an input
    const LaunchResult result = run(Layout::dense, Dtype::fp32, [&](const kernels::KernelCall& call) {
      twice(call);
      smash(call.at("x"), at);
    });
    EXPECT_EQ(result.clobbered, std::vector<std::string>{"x"}) << at;
    EXPECT_TRUE(result.overrun.empty());
  }
}

TEST(Launch, InPlaceOutputsMayChangeTheirElementsOnly) {
  const LaunchResult result = run(
      Layout::padded, Dtype::fp32,
      [](const kernels::KernelCall& call) {
        EXPECT_EQ(call.at("x").data, call.at("y").data);
        twice(call);
        smash(call.at("y"), 5);
      },
      true);
  EXPECT_EQ(result.overrun, std::vector<std::string>{"x"});
  EXPECT_TRUE(result.clobbered.empty());
}

TEST(Launch, TheCallersTensorsStayAsTheyWere) {
  LaunchTensors tensors;
  tensors.write.emplace("y", GuardedTensor(Dtype::fp32, {4}, Layout::dense, poison(Dtype::fp32, 0)));
  const GuardedTensor before = tensors.write.at("y").clone();
  launch(
      [](const kernels::KernelCall& call) {
        from_doubles(std::vector<double>{1, 2, 3, 4}, call.at("y"));
      },
      tensors, Attributes{}, Device::cpu);
  EXPECT_TRUE(tensors.write.at("y").same_bytes(before));
}

TEST(LayoutOf, OneTensorOrAll) {
  EXPECT_EQ(layout_of("dense", "x"), Layout::dense);
  EXPECT_EQ(layout_of("padded", "x"), Layout::padded);
  EXPECT_EQ(layout_of("last2:x", "x"), Layout::last2);
  EXPECT_EQ(layout_of("last2:x", "dx"), Layout::dense);
  EXPECT_EQ(layout_of("expanded:dy", "dy"), Layout::expanded);
  EXPECT_THROW(layout_of("wobbly", "x"), Error);
}

}  // namespace
}  // namespace ampcheck::checks
