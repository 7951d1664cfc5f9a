// SPDX-License-Identifier: Apache-2.0
// A library with a kernel on a GPU and its launcher, as a compiler of CUDA leaves it: PTX in a fat binary, registered
// before main(), launched through the CUDA runtime, which is not linked. Written by hand, so that it needs no toolkit.
// `twice` is right; `twice_past_end` lets the last block write on; `twice_unwritten` reads what it has not copied.
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <ampcheck/op.h>

namespace {

struct Extent {
  unsigned x, y, z;
};

}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** binary);
void __cudaUnregisterFatBinary(void** binary);
void __cudaRegisterFunction(void** binary, const char* host, char* device, const char* name, int threads, void* thread,
                            void* block, void* block_extent, void* grid_extent, int* warp);
unsigned __cudaPushCallConfiguration(Extent grid, Extent block, std::size_t shared, void* stream);
int __cudaPopCallConfiguration(Extent* grid, Extent* block, std::size_t* shared, void* stream);
int cudaLaunchKernel(const void* function, Extent grid, Extent block, void** arguments, std::size_t shared,
                     void* stream);
int cudaMalloc(void** out, std::size_t bytes);
int cudaFree(void* memory);
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream);
int cudaGetLastError(void);
const char* cudaGetErrorString(int error);
}

namespace {

using namespace ampcheck::op;

std::string kernel(const std::string& name, const std::string& guard) {
  return ".visible .entry " + name +
         "(.param .u64 x, .param .u64 y, .param .u32 n)\n{\n"
         "  .reg .b64 %d<6>;\n  .reg .b32 %r<6>;\n  .reg .f32 %f<2>;\n  .reg .pred %p<1>;\n"
         "  .loc 1 12 3\n  mov.u32 %r0, %ctaid.x;\n  mov.u32 %r1, %ntid.x;\n  mov.u32 %r2, %tid.x;\n"
         "  mad.lo.s32 %r3, %r0, %r1, %r2;\n  ld.param.u64 %d0, [x];\n  ld.param.u64 %d1, [y];\n"
         "  ld.param.u32 %r4, [n];\n" +
         guard +
         "  mul.wide.s32 %d2, %r3, 4;\n  add.s64 %d3, %d0, %d2;\n  add.s64 %d4, %d1, %d2;\n"
         "  .loc 1 14 3\n  ld.global.f32 %f0, [%d3];\n  add.f32 %f1, %f0, %f0;\n  st.global.f32 [%d4], %f1;\n  "
         "ret;\n}\n";
}

struct FatBinary {
  struct Head {
    std::uint32_t magic = 0xba55ed50u;
    std::uint16_t version = 1, bytes = 16;
    std::uint64_t size = 0;
  };
  struct Part {
    std::uint16_t kind = 1, version = 0x101;
    std::uint32_t header = 64;
    std::uint64_t size = 0;
    std::uint32_t compressed = 0, further = 0, revision = 0, architecture = 80;
    std::uint64_t name = 0, how = 0, more = 0, expanded = 0;
  };
  struct Wrapper {
    std::uint32_t magic = 0x466243b1u, version = 1;
    const void* binary = nullptr;
    void* further = nullptr;
  };
  std::string bytes;
  Wrapper wrapper;
  void** handle = nullptr;

  explicit FatBinary(const std::string& text) {
    Part part;
    part.size = (text.size() + 8) / 8 * 8;
    Head head;
    head.size = sizeof part + part.size;
    bytes.assign(sizeof head + sizeof part + part.size, '\0');
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &part, sizeof part);
    std::memcpy(bytes.data() + sizeof head + sizeof part, text.data(), text.size());
    wrapper.binary = bytes.data();
    handle = __cudaRegisterFatBinary(&wrapper);
  }
  ~FatBinary() { __cudaUnregisterFatBinary(handle); }
  FatBinary(const FatBinary&) = delete;
  FatBinary& operator=(const FatBinary&) = delete;
};

/// What stands for a kernel on the host.
char right_stub, past_end_stub;

FatBinary registered = [] {
  return FatBinary(".version 7.0\n.target sm_80\n.address_size 64\n.file 1 \"twice.cu\"\n" +
                   kernel("twice", "  setp.ge.s32 %p0, %r3, %r4;\n  @%p0 ret;\n") + kernel("twice_past_end", ""));
}();
const bool kNamed = [] {
  __cudaRegisterFunction(registered.handle, &right_stub, nullptr, "twice", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterFunction(registered.handle, &past_end_stub, nullptr, "twice_past_end", -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(registered.handle);
  return true;
}();

void checked(int code) {
  if (code != 0) throw std::runtime_error(cudaGetErrorString(code));
}

struct Memory {
  void* data = nullptr;
  explicit Memory(std::size_t bytes) { checked(cudaMalloc(&data, bytes)); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

/// kernel<<<grid, block, 0, stream>>>(from, to, n)
void launch(const void* function, const void* from, void* to, int n, void* stream) {
  const Extent wanted_grid{static_cast<unsigned>(n + 63) / 64, 1, 1}, wanted_block{64, 1, 1};
  checked(static_cast<int>(__cudaPushCallConfiguration(wanted_grid, wanted_block, 0, stream)));
  Extent grid, block;
  std::size_t shared = 0;
  void* there = nullptr;
  void* arguments[] = {&from, &to, &n};
  checked(__cudaPopCallConfiguration(&grid, &block, &shared, &there));
  cudaLaunchKernel(function, grid, block, arguments, shared, there);
  checked(cudaGetLastError());
}

void describe(Op& op, const void* function, bool copies) {
  op.input("x", "N").no_gradient();
  op.output("y");
  op.dim("N", 5, 64, 130);
  op.storage({AC_FP32});
  op.devices(AC_ON_CUDA);
  op.formula([](Expr x) { return x * 2; });
  op.forward([=](auto, const Call& call) {
    const auto x = call.view<const float>("x");
    const auto y = call.view<float>("y");
    const auto n = static_cast<int>(x.extent(0));
    if (n == 0) return;  // there is no empty grid
    const Memory scratch(static_cast<std::size_t>(n) * 4);
    constexpr int kOnDevice = 3;
    if (copies)
      checked(cudaMemcpyAsync(scratch.data, x.data(), static_cast<std::size_t>(n) * 4, kOnDevice, call.stream()));
    launch(function, scratch.data, y.data(), n, call.stream());
  });
}

}  // namespace

AMPCHECK_OP(twice, op) { describe(op, &right_stub, true); }
AMPCHECK_OP(twice_past_end, op) { describe(op, &past_end_stub, true); }
AMPCHECK_OP(twice_unwritten, op) { describe(op, &right_stub, false); }
