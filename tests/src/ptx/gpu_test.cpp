// SPDX-License-Identifier: Apache-2.0
// The simulated GPU as programs see it: fat binaries, memory, launches by the calls of the CUDA runtime.
#include "src/ptx/gpu.h"

#include <gtest/gtest.h>

#include <cstring>

#include "src/launch_notes.h"
#include "src/ptx/device_facts.h"
#include "src/ptx/fat_binary.h"
#include "src/ptx/gpu_calls.h"
#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// A part of a fat binary: `body` is PTX, as `how` says.
std::string part_of(int architecture, std::string body, std::uint64_t how = 0, std::uint64_t expanded = 0) {
  const auto size = static_cast<std::uint32_t>(body.size());
  body.resize((body.size() + 8) / 8 * 8);
  std::string out(64, '\0');
  put<std::uint16_t>(out, 0, 1);
  put<std::uint32_t>(out, 4, 64);
  put<std::uint64_t>(out, 8, body.size());
  put<std::uint32_t>(out, 16, size);
  put<std::uint32_t>(out, 28, static_cast<std::uint32_t>(architecture));
  put<std::uint64_t>(out, 40, how);
  put<std::uint64_t>(out, 56, expanded);
  return out + body;
}
std::string binary_of(const std::string& parts) {
  std::string out(16, '\0');
  put<std::uint32_t>(out, 0, 0xba55ed50u);
  put<std::uint16_t>(out, 6, 16);
  put<std::uint64_t>(out, 8, parts.size());
  return out + parts;
}

TEST(FatBinary, HoldsATextForEachArchitecture) {
  const std::string binary = binary_of(part_of(80, ".version 8.0\n") + part_of(90, ".version 9.0\n"));
  const std::vector<PtxText> all = ptx_of_fat_binary(binary.data());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].architecture, 80);
  EXPECT_EQ(all[0].text, ".version 8.0\n");
  EXPECT_EQ(all[1].text, ".version 9.0\n");
}

/// Literals alone: a token, and no match behind it.
TEST(FatBinary, ExpandsLz4) {
  const std::string text = ".version 8.0\n";
  std::string compressed(1, static_cast<char>(text.size() << 4));
  compressed += text;
  const std::string binary = binary_of(part_of(80, compressed, 0x2011, text.size()));
  try {
    EXPECT_EQ(ptx_of_fat_binary(binary.data()).at(0).text, text);
  } catch (const EnvironmentError& error) {
    if (std::string(error.what()).find("liblz4") == std::string::npos) throw;
    GTEST_SKIP() << error.what();
  }
}

TEST(FatBinary, ADamagedOneIsRefused) {
  const std::string other(32, 'x');
  EXPECT_THROW(ptx_of_fat_binary(other.data()), PtxError);
  EXPECT_THROW(ptx_of_fat_binary(nullptr), PtxError);
  std::string longer = binary_of(part_of(80, ".version 8.0\n"));
  put<std::uint64_t>(longer, 16 + 8, 1000);
  EXPECT_THROW(ptx_of_fat_binary(longer.data()), PtxError);
  const std::string garbage = binary_of(part_of(80, "no zstd", 0x8011, 100));
  EXPECT_THROW(ptx_of_fat_binary(garbage.data()), Error);
}

/// The kernel of machine_for_tests.h, registered.
class Registered {
 public:
  explicit Registered(const std::string& body, const std::string& variables = "")
      : binary_(binary_of(part_of(80, kernel_text(body, variables)))) {
    wrapper_.binary = binary_.data();
    handle_ = gpu_calls().add_binary(&wrapper_);
    gpu_calls().add_function(handle_, &stub_, nullptr, "k", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    gpu_calls().add_variable(handle_, &variable_, nullptr, "count", 0, 4, 0, 0);
  }
  ~Registered() { gpu_calls().remove_binary(handle_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  int launch(const void* a, const void* b, std::uint32_t n, AmpcheckExtent grid = {1, 1, 1},
             AmpcheckExtent block = {32, 1, 1}, std::size_t shared = 0) {
    void* arguments[] = {&a, &b, &n};
    return gpu_calls().launch(&stub_, grid, block, arguments, shared, nullptr);
  }
  const void* stub() const { return &stub_; }
  const void* variable() const { return &variable_; }

 private:
  struct {
    std::uint32_t magic = 0x466243b1u, version = 1;
    const void *binary = nullptr, *further = nullptr;
  } wrapper_;
  std::string binary_;
  void** handle_ = nullptr;
  char stub_ = 0, variable_ = 0;
};

constexpr const char* kTwice = "ld.global.f32 %f0, [%pa];\nadd.f32 %f1, %f0, %f0;\nst.global.f32 [%pb], %f1;\n";

TEST(Gpu, ALaunchReadsAndWritesWhatWasAllocated) {
  Registered kernel(kTwice);
  const AmpcheckCudaCalls& cuda = gpu_calls();
  std::vector<float> numbers(32);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(cuda.allocate(&a, 128), 0);
  ASSERT_EQ(cuda.allocate(&b, 128), 0);
  GpuCall call({}, nullptr);
  EXPECT_EQ(cuda.copy(a, numbers.data(), 128, 1), 0);
  EXPECT_EQ(kernel.launch(a, b, 32), 0);
  EXPECT_EQ(cuda.copy(numbers.data(), b, 128, 2), 0);
  call.finish();
  EXPECT_EQ(numbers[7], 14.0f);
  EXPECT_TRUE(take_launch_notes().empty());
  EXPECT_EQ(cuda.release_memory(a), 0);
  EXPECT_EQ(cuda.release_memory(b), 0);
}

TEST(Gpu, FreedMemoryAndHalvesOfCopiesAreFound) {
  Registered kernel(kTwice);
  const AmpcheckCudaCalls& cuda = gpu_calls();
  void *a = nullptr, *b = nullptr;
  cuda.allocate(&a, 128);
  cuda.allocate(&b, 64);
  GpuCall call({}, nullptr);
  EXPECT_EQ(cuda.copy(b, a, 128, 3), static_cast<int>(CudaError::invalid_value)) << "b has 64 bytes";
  EXPECT_EQ(cuda.take_error(), static_cast<int>(CudaError::invalid_value));
  EXPECT_EQ(cuda.take_error(), 0) << "taken";
  cuda.fill(a, 0, 128);
  cuda.release_memory(b);
  kernel.launch(a, b, 32);
  bool outside = false;
  for (const LaunchNote& note : take_launch_notes()) outside = outside || note.code == Code::ac603;
  EXPECT_TRUE(outside);
  EXPECT_EQ(cuda.release_memory(b), static_cast<int>(CudaError::invalid_value)) << "twice";
  cuda.release_memory(a);
}

TEST(Gpu, WhatNoGpuLaunchesIsRefused) {
  Registered kernel(kTwice);
  const AmpcheckCudaCalls& cuda = gpu_calls();
  {
    GpuCall call({}, nullptr);
    EXPECT_EQ(kernel.launch(nullptr, nullptr, 0, {0, 1, 1}), static_cast<int>(CudaError::invalid_configuration));
    EXPECT_THROW(call.finish(), Error);
  }
  {
    GpuCall call({}, nullptr);
    EXPECT_EQ(kernel.launch(nullptr, nullptr, 0, {1, 1, 1}, {2048, 1, 1}),
              static_cast<int>(CudaError::invalid_configuration));
    EXPECT_NE(call.trouble().find("want 1 to 1024"), std::string::npos) << call.trouble();
  }
  constexpr std::size_t kMuch = 100 * 1024;
  constexpr int kMostShared = 8;
  void *a = nullptr, *b = nullptr;
  cuda.allocate(&a, 128);
  cuda.allocate(&b, 128);
  cuda.fill(a, 0, 128);
  GpuCall call({}, nullptr);
  EXPECT_EQ(kernel.launch(a, b, 32, {1, 1, 1}, {32, 1, 1}, kMuch), static_cast<int>(CudaError::invalid_value));
  EXPECT_EQ(cuda.set_function_attribute(kernel.stub(), kMostShared, kMuch), 0);
  EXPECT_EQ(kernel.launch(a, b, 32, {1, 1, 1}, {32, 1, 1}, kMuch), 0);
  cuda.release_memory(a);
  cuda.release_memory(b);
}

/// Places of cudaDeviceProp as CUDA 12 and 13 have them: the kernel's PTX 8.0 is of CUDA 12.
TEST(Gpu, PropertiesAreThoseThatAttributesSay) {
  const AmpcheckCudaCalls& cuda = gpu_calls();
  const auto attribute = [&](int which) {
    int out = -1;
    cuda.device_attribute(&out, which, 0);
    return out;
  };
  std::vector<unsigned char> bytes(1100, 0xee);
  const auto at = [&](std::size_t place) {
    int out = 0;
    std::memcpy(&out, bytes.data() + place, sizeof out);
    return out;
  };
  ASSERT_EQ(cuda.device_properties_of_12(bytes.data(), 0), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(bytes.data()), "ampcheck device ptx");
  EXPECT_EQ(at(308), attribute(10));
  EXPECT_EQ(at(360) * 10 + at(364), 80);
  EXPECT_EQ(at(388), attribute(16));
  EXPECT_EQ(at(624), attribute(39));
  EXPECT_EQ(bytes[1031], 0);
  EXPECT_EQ(bytes[1032], 0xee) << "behind the end";
  std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0xee));
  ASSERT_TRUE(write_properties(bytes.data(), PropertyLayout::of_13));
  EXPECT_EQ(at(384), attribute(16));
  EXPECT_EQ(at(604), attribute(39));
  EXPECT_EQ(bytes[1008], 0xee) << "behind the end";
  EXPECT_NE(cuda.device_properties(bytes.data(), 1), 0) << "there is one device";
  EXPECT_NE(cuda.device_properties(nullptr, 0), 0);
  EXPECT_EQ(attribute(999), 0);
}

TEST(Gpu, CooperativeLaunchesAndGraphsAreRefusedByName) {
  Registered kernel(kTwice);
  const AmpcheckCudaCalls& cuda = gpu_calls();
  {
    GpuCall call({}, nullptr);
    EXPECT_EQ(cuda.launch_cooperative(kernel.stub(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr),
              static_cast<int>(CudaError::not_supported));
    EXPECT_NE(call.trouble().find("got a cooperative launch"), std::string::npos) << call.trouble();
  }
  GpuCall call({}, nullptr);
  void* graph = &graph;
  EXPECT_EQ(cuda.begin_capture(nullptr, 0), static_cast<int>(CudaError::not_supported));
  EXPECT_EQ(cuda.end_capture(nullptr, &graph), static_cast<int>(CudaError::not_supported));
  EXPECT_EQ(graph, nullptr);
  EXPECT_NE(call.trouble().find("got a CUDA graph"), std::string::npos) << call.trouble();
}

TEST(Gpu, VariablesOfTheModuleStayFromLaunchToLaunch) {
  Registered kernel("mov.u64 %d0, count;\natom.global.add.u32 %r0, [%d0], 1;\n", ".global .align 4 .u32 count;\n");
  const AmpcheckCudaCalls& cuda = gpu_calls();
  GpuCall call({}, nullptr);
  std::uint32_t count = 5;
  EXPECT_EQ(cuda.copy_to_symbol(kernel.variable(), &count, 4, 0, 1), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(kernel.launch(nullptr, nullptr, 0), 0) << call.trouble();
  EXPECT_EQ(cuda.copy_from_symbol(&count, kernel.variable(), 4, 0, 2), 0);
  EXPECT_EQ(count, 5u + 64u);
  EXPECT_EQ(cuda.copy_from_symbol(&count, kernel.variable(), 8, 0, 2), static_cast<int>(CudaError::invalid_symbol));
}

/// A parameter's address in a register, as an array in a struct is read.
TEST(Gpu, ParametersAreReadByTheirAddress) {
  Registered kernel("mov.b64 %d0, n;\nld.param.u32 %r0, [%d0];\nst.global.u32 [%pb], %r0;\n");
  void* b = nullptr;
  gpu_calls().allocate(&b, 128);
  GpuCall call({}, nullptr);
  EXPECT_EQ(kernel.launch(nullptr, b, 77), 0) << call.trouble();
  EXPECT_EQ(static_cast<const std::uint32_t*>(b)[31], 77u);
  EXPECT_TRUE(take_launch_notes().empty());
  gpu_calls().release_memory(b);
}

}  // namespace
}  // namespace ampcheck::ptx
