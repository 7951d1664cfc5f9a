// SPDX-License-Identifier: Apache-2.0
// Bugs of GPU kernels that a run on a GPU seldom shows, each with its correct twin, over four orders of warps and
// blocks.
#include <gtest/gtest.h>

#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

struct Planted {
  const char* name;
  Code code;          ///< that is due; none: other bits in another order
  const char* words;  ///< in the note
  std::string bad, good;
  const char* variables = "";
  Shape shape = {};
  std::size_t words_of_a = 256, words_of_b = 256;
};

constexpr const char* kBuffer = ".shared .align 4 .b8 buffer[1024];";
const Shape blocks = {.grid = 4, .b_initialised = true};
constexpr const char* kDynamic = ".extern .shared .align 4 .b8 more[];";

/// Thread t leaves a value, and takes that of another warp.
std::string exchange(const std::string& between) {
  return "mov.u32 %r0, buffer;\nadd.s32 %r1, %r0, %s;\nld.global.f32 %f0, [%pa];\nst.shared.f32 [%r1], %f0;\n" +
         between +
         "xor.b32 %r2, %s, 128;\nadd.s32 %r2, %r0, %r2;\nld.shared.f32 %f1, [%r2];\nst.global.f32 [%pb], %f1;\n";
}

std::string tiles(const std::string& at_end) {
  return "mov.u32 %r0, buffer;\nadd.s32 %r1, %r0, %s;\nxor.b32 %r2, %s, 128;\nadd.s32 %r2, %r0, %r2;\nmov.u32 %r3, 0;\n"
         "mov.f32 %f2, 0f00000000;\nloop:\nld.global.f32 %f0, [%pa];\ncvt.rn.f32.u32 %f4, %r3;\nadd.f32 %f0, %f0, "
         "%f4;\n"
         "st.shared.f32 [%r1], %f0;\nbar.sync 0;\nld.shared.f32 %f1, [%r2];\nadd.f32 %f2, %f2, %f1;\n" +
         at_end + "add.s32 %r3, %r3, 1;\nsetp.lt.s32 %p0, %r3, 4;\n@%p0 bra loop;\nst.global.f32 [%pb], %f2;\n";
}

std::string guarded(const std::string& guard) {
  return guard + "ld.global.f32 %f0, [%pa];\nst.global.f32 [%pb], %f0;\n";
}

std::string shared_at(const std::string& variable, const std::string& scale) {
  return "mov.u32 %r0, " + variable + ";\nmul.lo.s32 %r1, %t, " + scale +
         ";\nadd.s32 %r1, %r0, %r1;\nst.shared.u32 [%r1], %t;\nst.global.u32 [%pb], %t;\n";
}

std::string shuffle_under(const std::string& before, const std::string& mask, const std::string& lane) {
  return "and.b32 %r0, %t, 31;\nld.global.b32 %r5, [%pa];\nmov.u32 %r6, %r5;\nsetp.ge.u32 %p0, %r0, 16;\n" + before +
         "shfl.sync.idx.b32 %r6, %r5, " + lane + ", 31, " + mask + ";\nskip:\nst.global.b32 [%pb], %r6;\n";
}

void add_block_bugs(std::vector<Planted>& all) {
  all.push_back({"no barrier before another warp's value", Code::ac601, "want __syncthreads() between", exchange(""),
                 exchange("bar.sync 0;\n"), kBuffer});
  all.push_back({"the next tile overwrites this one", Code::ac601, "want __syncthreads() between", tiles(""),
                 tiles("bar.sync 0;\n"), kBuffer});
  const std::string guard = "setp.ge.u32 %p0, %i, %n;\n@%p0 ret;\n";
  all.push_back({"no guard of the last block",
                 Code::ac603,
                 "behind the end of 'a'",
                 guarded(""),
                 guarded(guard),
                 "",
                 {.grid = 4},
                 250,
                 256});
  all.push_back({"a buffer of halves read as floats",
                 Code::ac603,
                 "behind the end of 'a'",
                 guarded(""),
                 "mul.wide.s32 %o, %i, 2;\nadd.s64 %pa, %a, %o;\nld.global.b16 %h0, [%pa];\ncvt.f32.f16 %f0, "
                 "%h0;\nst.global.f32 [%pb], %f0;\n",
                 "",
                 {.grid = 4, .a_bytes = 512}});
  all.push_back({"too few bytes of dynamic shared memory",
                 Code::ac603,
                 "behind the end of shared memory",
                 shared_at("more", "8"),
                 shared_at("more", "4"),
                 kDynamic,
                 {.shared = 256}});
  all.push_back({"over the end of static shared memory", Code::ac603, "behind the end of shared memory",
                 shared_at("buffer", "20"), shared_at("buffer", "4"), kBuffer});
  const std::string two_sites =
      "setp.lt.u32 %p0, %t, 16;\n@%p0 bra low;\nbar.sync 0;\nbra join;\nlow:\nbar.sync 0;\njoin:\nst.global.u32 [%pb], "
      "%t;\n";
  all.push_back({"a barrier in each branch", Code::ac604, "different barriers", two_sites,
                 "bar.sync 0;\nst.global.u32 [%pb], %t;\n"});
  const std::string skipped = "setp.ge.u32 %p1, %t, 32;\n@%p1 bra over;\nbar.sync 0;\nover:\n";
  all.push_back({"half of the block skips the barrier", Code::ac601, "want __syncthreads() between", exchange(skipped),
                 exchange("bar.sync 0;\n"), kBuffer});
  const std::string
      count = "mov.u64 %d0, %b;\nld.global.u32 %r0, [%d0];\nadd.u32 %r0, %r0, 1;\nst.global.u32 [%d0], %r0;\n",
      atomically = "red.global.add.u32 [%b], 1;\n";
  all.push_back(
      {"blocks count without an atomic", Code::ac601, "nothing orders blocks", count, atomically, "", blocks});
  const std::string
      neighbour = "add.s32 %r0, %i, 1;\nand.b32 %r0, %r0, 255;\nmul.wide.s32 %d1, %r0, 4;\n",
      in_place = "add.s64 %d2, %b, %d1;\nld.global.u32 %r1, [%d2];\nadd.u32 %r1, %r1, %i;\nst.global.u32 [%pb], %r1;\n",
      elsewhere =
          "add.s64 %d2, %a, %d1;\nld.global.u32 %r1, [%d2];\nadd.u32 %r1, %r1, %i;\nst.global.u32 [%pb], %r1;\n";
  all.push_back({"a stencil in place", Code::ac601, "'b'", neighbour + in_place, neighbour + elsewhere, "", blocks});
}

void add_warp_bugs(std::vector<Planted>& all) {
  all.push_back({"a full mask in half of a warp", Code::ac604, "its mask names lane 16",
                 shuffle_under("@%p0 bra skip;\n", "-1", "3"), shuffle_under("@%p0 bra skip;\n", "65535", "3")});
  all.push_back({"a shuffle from outside the mask", Code::ac604, "not in the mask",
                 shuffle_under("@%p0 bra skip;\n", "65535", "20"), shuffle_under("@%p0 bra skip;\n", "65535", "2")});
  all.push_back({"a full mask after lanes have ended", Code::ac604, "does not take part",
                 "and.b32 %r0, %t, 31;\nld.global.b32 %r5, [%pa];\nsetp.ge.u32 %p0, %r0, 24;\n@%p0 "
                 "ret;\nshfl.sync.bfly.b32 %r6, %r5, 16, 31, -1;\nst.global.b32 [%pb], %r6;\n",
                 "ld.global.b32 %r5, [%pa];\nshfl.sync.bfly.b32 %r6, %r5, 16, 31, -1;\nst.global.b32 [%pb], %r6;\n"});
  const std::string
      part = "mov.u32 %r0, buffer;\nadd.s32 %r1, %r0, %s;\n",
      take = "xor.b32 %r2, %s, 4;\nadd.s32 %r2, %r0, %r2;\nld.shared.f32 %f1, [%r2];\nst.global.f32 [%pb], %f1;\n";
  all.push_back({"shared memory that nothing wrote", Code::ac602, "which nothing wrote",
                 part + "setp.lt.u32 %p0, %t, 60;\n@%p0 st.shared.u32 [%r1], %t;\nbar.sync 0;\n" + take,
                 part + "st.shared.u32 [%r1], %t;\nbar.sync 0;\n" + take, kBuffer});
  all.push_back({"no __syncwarp between two lanes", Code::ac601, "want __syncwarp() between",
                 part + "st.shared.u32 [%r1], %t;\n" + take,
                 part + "st.shared.u32 [%r1], %t;\nbar.warp.sync -1;\n" + take, kBuffer});
  const std::string sum = "ld.global.f32 %f0, [%pa];\nmul.f32 %f0, %f0, %f0;\nred.global.add.f32 [%b], %f0;\n";
  all.push_back({"a sum in the order of arrival", Code::none, "", sum,
                 "ld.global.u32 %r0, [%pa];\nred.global.add.u32 [%b], %r0;\n", "", blocks});
  const std::string wide = "mul.wide.u32 %d0, %t, 16;\nadd.s64 %d0, %a, %d0;\n";
  all.push_back({"a vector off its alignment",
                 Code::ac605,
                 "4 bytes off a multiple of 16",
                 wide + "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0+4];\nst.global.f32 [%pb], %f3;\n",
                 wide + "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];\nst.global.f32 [%pb], %f3;\n",
                 "",
                 {.block = 32}});
}

std::vector<Planted> planted() {
  std::vector<Planted> all;
  add_block_bugs(all);
  add_warp_bugs(all);
  return all;
}

TEST(PlantedKernels, AreFoundInEveryOrderAndTheirTwinsAreClean) {
  for (const Planted& bug : planted()) {
    SCOPED_TRACE(bug.name);
    std::vector<std::vector<std::uint32_t>> bad_bits, good_bits;
    for (std::uint64_t schedule = 0; schedule < 4; ++schedule) {
      Shape shape = bug.shape;
      shape.schedule = schedule;
      const std::vector<std::uint32_t> a = floats(bug.words_of_a);
      const Ran bad = run_text(kernel_text(bug.bad, bug.variables), a, bug.words_of_b, shape);
      const Ran good = run_text(kernel_text(bug.good, bug.variables), a, bug.words_of_b, shape);
      if (bug.code != Code::none) {
        EXPECT_TRUE(bad.has(bug.code, bug.words)) << schedule << "\n" << bad.text();
      }
      EXPECT_EQ(good.findings(), 0) << schedule << "\n" << good.text();
      bad_bits.push_back(bad.b);
      good_bits.push_back(good.b);
    }
    for (const auto& bits : good_bits) EXPECT_EQ(bits, good_bits[0]);
    if (bug.code == Code::none) {
      EXPECT_FALSE(bad_bits[1] == bad_bits[0] && bad_bits[2] == bad_bits[0] && bad_bits[3] == bad_bits[0]);
    }
  }
}

/// Every block leaves a part and counts itself; the last one adds the parts.
std::string last_block(const std::string& fence) {
  return "ld.global.u32 %r0, [%pa];\nsetp.ne.u32 %p0, %t, 0;\n@%p0 ret;\nmul.wide.u32 %d0, %c, 4;\nadd.s64 %d1, %b, "
         "%d0;\n"
         "st.global.u32 [%d1+4], %r0;\n" +
         fence +
         "atom.global.inc.u32 %r1, [%b], 3;\nsetp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\nmov.u32 %r2, 0;\nmov.u32 %r4, "
         "0;\nmov.u64 %d2, %b;\n"
         "more:\nld.global.u32 %r3, [%d2+4];\nadd.u32 %r4, %r4, %r3;\nadd.s64 %d2, %d2, 4;\nadd.u32 %r2, %r2, 1;\n"
         "setp.lt.u32 %p2, %r2, 4;\n@%p2 bra more;\nst.global.u32 [%b+32], %r4;\n";
}

TEST(PlantedKernels, TheLastBlockMayReadWhatOthersLeftBehindAFence) {
  for (std::uint64_t schedule = 0; schedule < 4; ++schedule) {
    const Shape shape = {.grid = 4, .block = 32, .b_initialised = true, .schedule = schedule};
    const std::vector<std::uint32_t> a(128, 5);
    const Ran good = run_text(kernel_text(last_block("membar.gl;\n")), a, 16, shape),
              bad = run_text(kernel_text(last_block("")), a, 16, shape);
    EXPECT_EQ(good.findings(), 0) << good.text();
    EXPECT_EQ(good.b[8], 20u);
    EXPECT_TRUE(bad.has(Code::ac601, "nothing orders blocks")) << bad.text();
  }
}

}  // namespace
}  // namespace ampcheck::ptx
