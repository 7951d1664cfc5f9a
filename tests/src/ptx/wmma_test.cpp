// SPDX-License-Identifier: Apache-2.0
// Matrices of a whole warp: whatever shape, layout and type, d is what the tensor core makes of a, b and c.
#include <gtest/gtest.h>

#include "src/random.h"
#include "src/rounding.h"
#include "src/tensor_core/instruction.h"
#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

struct Wmma {
  const char* shape;
  int m, n, k;
  const char* factor;  ///< f16, bf16, tf32, s8
  const char* sum;     ///< f32, f16, s32
  int a_registers, b_registers, sum_registers;
  tensor_core::Input input;
  bool a_by_row = true, b_by_row = true;
};

std::string list(const std::string& name, int count) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + name + std::to_string(i);
  return out + "}";
}

/// Codes of the factors, an element a word; in memory they lie as `bytes` says.
std::vector<std::uint32_t> factors(const Wmma& w, std::size_t count, std::uint64_t seed) {
  const Random random(seed, "wmma");
  std::vector<std::uint32_t> out(count);
  const std::string type = w.factor;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = (static_cast<double>(random.below(i, 2000)) - 1000) / 700;
    out[i] = type == "s8"     ? random.below(i, 256) & 255u
             : type == "tf32" ? std::bit_cast<std::uint32_t>(static_cast<float>(x))
                              : static_cast<std::uint32_t>(encode_scalar(type == "f16" ? kFp16 : kBf16, x));
  }
  return out;
}

int bytes_of(const std::string& type) {
  return type == "s8" || type == "u8" ? 1 : type == "f16" || type == "bf16" ? 2 : 4;
}

void put(std::vector<std::uint32_t>& memory, std::size_t byte, std::uint32_t code, int bytes) {
  std::memcpy(reinterpret_cast<char*>(memory.data()) + byte, &code, static_cast<std::size_t>(bytes));
}

/// The text of load, product and store; a, b and c stand behind each other in memory, their rows closely packed.
std::string text_of(const Wmma& w, std::size_t b_at, std::size_t c_at) {
  const std::string shape = w.shape, layout_a = w.a_by_row ? "row" : "col", layout_b = w.b_by_row ? "row" : "col",
                    factor = w.factor, sum = w.sum;
  const int stride_a = w.a_by_row ? w.k : w.m, stride_b = w.b_by_row ? w.n : w.k;
  const bool fp16 = factor == "f16";
  return "add.s64 %d1, %a, " + std::to_string(b_at) + ";\nadd.s64 %d2, %a, " + std::to_string(c_at) + ";\n" +
         "wmma.load.a.sync.aligned." + layout_a + "." + shape + ".global." + factor + " " + list("%wa", w.a_registers) +
         ", [%a], " + std::to_string(stride_a) + ";\nwmma.load.b.sync.aligned." + layout_b + "." + shape + ".global." +
         factor + " " + list("%wb", w.b_registers) + ", [%d1], " + std::to_string(stride_b) +
         ";\nwmma.load.c.sync.aligned.row." + shape + ".global." + sum + " " + list("%wc", w.sum_registers) +
         ", [%d2], " + std::to_string(w.n) + ";\nwmma.mma.sync.aligned." + layout_a + "." + layout_b + "." + shape +
         "." + sum + (fp16 ? "." + sum : "." + factor + "." + factor + "." + sum) + " " + list("%wd", w.sum_registers) +
         ", " + list("%wa", w.a_registers) + ", " + list("%wb", w.b_registers) + ", " + list("%wc", w.sum_registers) +
         ";\nwmma.store.d.sync.aligned.row." + shape + ".global." + sum + " [%b], " + list("%wd", w.sum_registers) +
         ", " + std::to_string(w.n) + ";\n";
}

void expect_product(const Wmma& w) {
  SCOPED_TRACE(std::string(w.shape) + " " + w.factor + " " + w.sum);
  const auto size_a = static_cast<std::size_t>(w.m * w.k), size_b = static_cast<std::size_t>(w.k * w.n),
             size_c = static_cast<std::size_t>(w.m * w.n);
  const int wide = bytes_of(w.factor), sum = bytes_of(w.sum);
  const std::vector<std::uint32_t> a = factors(w, size_a, 1), b = factors(w, size_b, 2);
  const std::size_t b_at = size_a * static_cast<std::size_t>(wide),
                    c_at = b_at + size_b * static_cast<std::size_t>(wide);
  std::vector<std::uint32_t> memory((c_at + size_c * static_cast<std::size_t>(sum)) / 4);
  for (int row = 0; row < w.m; ++row)
    for (int k = 0; k < w.k; ++k)
      put(memory, static_cast<std::size_t>((w.a_by_row ? row * w.k + k : k * w.m + row) * wide),
          a[static_cast<std::size_t>(row * w.k + k)], wide);
  for (int k = 0; k < w.k; ++k)
    for (int column = 0; column < w.n; ++column)
      put(memory, b_at + static_cast<std::size_t>((w.b_by_row ? k * w.n + column : column * w.k + k) * wide),
          b[static_cast<std::size_t>(k * w.n + column)], wide);
  const std::uint32_t one = std::string(w.sum) == "f32" ? 0x3f800000u : std::string(w.sum) == "f16" ? 0x3c00u : 7u;
  for (std::size_t i = 0; i < size_c; ++i) put(memory, c_at + i * static_cast<std::size_t>(sum), one, sum);
  std::string text = kernel_text(text_of(w, b_at, c_at));
  text.insert(text.find(".reg .pred"), ".reg .b32 %wa<8>, %wb<8>, %wc<8>, %wd<8>;\n");
  const Ran ran = run_text(text, memory, size_c * static_cast<std::size_t>(sum) / 4, {.block = 32});
  ASSERT_EQ(ran.findings(), 0) << ran.text();
  for (int row = 0; row < w.m; ++row)
    for (int column = 0; column < w.n; ++column) {
      std::vector<std::uint32_t> x, y;
      std::int64_t whole = 7;
      for (int k = 0; k < w.k; ++k) {
        x.push_back(a[static_cast<std::size_t>(row * w.k + k)]);
        y.push_back(b[static_cast<std::size_t>(k * w.n + column)]);
        whole += static_cast<std::int8_t>(x.back()) * static_cast<std::int8_t>(y.back());
      }
      const auto i = static_cast<std::size_t>(row * w.n + column);
      const std::uint32_t got = sum == 4 ? ran.b[i] : ran.b[i / 2] >> (16 * (i % 2)) & 0xffffu;
      const std::uint32_t want =
          std::string(w.sum) == "s32"
              ? static_cast<std::uint32_t>(whole)
              : tensor_core::dot({.generation = TensorCore::a100,
                                  .a = w.input,
                                  .b = w.input,
                                  .output = sum == 2 ? tensor_core::Output::fp16 : tensor_core::Output::fp32,
                                  .k = w.k},
                                 x, y, one);
      ASSERT_EQ(got, want) << row << " " << column;
    }
}

TEST(Wmma, IsTheTensorCoresProduct) {
  using enum tensor_core::Input;
  const Wmma all[] = {{"m16n16k16", 16, 16, 16, "f16", "f32", 8, 8, 8, fp16},
                      {"m16n16k16", 16, 16, 16, "f16", "f16", 8, 8, 4, fp16, true, false},
                      {"m8n32k16", 8, 32, 16, "f16", "f32", 8, 8, 8, fp16, false, true},
                      {"m32n8k16", 32, 8, 16, "f16", "f32", 8, 8, 8, fp16, false, false},
                      {"m16n16k16", 16, 16, 16, "bf16", "f32", 4, 4, 8, bf16},
                      {"m8n32k16", 8, 32, 16, "bf16", "f32", 2, 8, 8, bf16, true, false},
                      {"m16n16k8", 16, 16, 8, "tf32", "f32", 4, 4, 8, tf32, true, false},
                      {"m16n16k16", 16, 16, 16, "s8", "s32", 2, 2, 8, fp16, true, false},
                      {"m32n8k16", 32, 8, 16, "s8", "s32", 4, 1, 8, fp16}};
  for (const Wmma& w : all) expect_product(w);
}

TEST(Wmma, ABadOneIsRefusedWithItsLine) {
  const auto refusal = [](const std::string& line) {
    try {
      run_text(kernel_text(line), floats(32), 32, {.block = 32});
    } catch (const PtxError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(refusal("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1}, [%a], 16;\n")
                .find("got 2 registers of a fragment"),
            std::string::npos);
  EXPECT_NE(refusal("wmma.load.a.sync.aligned.row.m8n8k4.global.f64 %d1, [%a], 4;\n").find("want m16n16k16"),
            std::string::npos);
}

/// A tile that is read over the end of its tensor.
TEST(Wmma, AnAccessOutsideIsFound) {
  const std::string load =
      "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%a], ";
  const std::vector<std::uint32_t> a(128, 0);
  EXPECT_EQ(run_text(kernel_text(load + "16;\n"), a, 32, {.block = 32}).findings(), 0);
  EXPECT_TRUE(run_text(kernel_text(load + "24;\n"), a, 32, {.block = 32}).has(Code::ac603, "behind the end of 'a'"));
}

}  // namespace
}  // namespace ampcheck::ptx
