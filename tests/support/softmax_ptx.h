// SPDX-License-Identifier: Apache-2.0
// A softmax of rows as a GPU kernel, in PTX by hand: 64 threads a row, lines of "softmax.cu" as .loc gives them. And
// how it is launched.
#pragma once

#include <string>

namespace ampcheck::testing {

struct SoftmaxPtx {
  bool tail = true;     ///< false: only whole fours of a row are written
  bool barrier = true;  ///< false: the sums overwrite the maxima that others still read
  bool bf16 = false;    ///< the sum is rounded to bf16 at each step
  bool ends = true;     ///< false: its last loop does not move on
  bool reads_too_far = false;
};

inline std::string softmax_ptx(const SoftmaxPtx& how = {}) {
  const auto reduce = [](const std::string& what, const std::string& value) {
    std::string out;
    for (const char* by : {"16", "8", "4", "2", "1"})
      out += "shfl.sync.bfly.b32 %r20, " + value + ", " + by + ", 31, -1;\nmov.b32 %f20, %r20;\nmov.b32 %f21, " +
             value + ";\n" + what + " %f21, %f21, %f20;\nmov.b32 " + value + ", %f21;\n";
    return out;
  };
  const auto loop = [](const std::string& name, int line, const std::string& body, const std::string& limit,
                       const std::string& step) {
    const std::string loc = ".loc 1 " + std::to_string(line) + " 3\n";
    return loc + "mov.u32 %i, %t;\n" + name + ":\nsetp.ge.s32 %p0, %i, " + limit + ";\n@%p0 bra " + name +
           "_end;\nmul.wide.s32 %o, %i, 4;\nadd.s64 %px, %x, %o;\nld.global.f32 %f0, [%px];\n" + body + loc + step +
           "bra " + name + ";\n" + name + "_end:\n";
  };
  const std::string next = "add.s32 %i, %i, %n;\n";
  // exp(f0 - f1) to an ulp: a whole power of two, and ex2 of what is left.
  const std::string exp =
      "sub.f32 %f2, %f0, %f1;\nmul.f32 %f3, %f2, 0f3FB8AA3B;\ncvt.rni.f32.f32 %f3, %f3;\nneg.f32 %f4, %f3;\n"
      "fma.rn.f32 %f5, %f4, 0f3F317200, %f2;\nfma.rn.f32 %f5, %f4, 0f35BFBE8E, %f5;\nmul.f32 %f5, %f5, 0f3FB8AA3B;\n"
      "ex2.approx.f32 %f5, %f5;\nex2.approx.f32 %f6, %f3;\nmul.f32 %f5, %f5, %f6;\n";
  const std::string rounds = how.bf16 ? "cvt.rn.bf16.f32 %h0, %s;\ncvt.f32.bf16 %s, %h0;\n" : "";
  const std::string share = "mov.u32 %r1, part;\nadd.s32 %r1, %r1, %warp;\nsetp.eq.u32 %p1, %lane, 0;\n";
  return std::string(
             ".version 8.0\n.target sm_90\n.address_size 64\n.file 1 \"softmax.cu\"\n"
             ".visible .entry softmax(.param .u64 x, .param .u64 y, .param .u32 d)\n{\n.shared .align 4 .b8 part[8];\n"
             ".reg .b64 %x, %y, %o, %px, %py;\n.reg .b32 %d, %i, %t, %c, %n, %lane, %warp, %limit, %r<30>;\n"
             ".reg .f32 %s, %f<30>;\n.reg .b16 %h<2>;\n.reg .pred %p<4>;\n"
             ".loc 1 2 1\nld.param.u64 %x, [x];\nld.param.u64 %y, [y];\nld.param.u32 %d, [d];\nmov.u32 %t, %tid.x;\n"
             "mov.u32 %c, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmul.lo.s32 %r0, %c, %d;\nmul.wide.s32 %o, %r0, 4;\n"
             "add.s64 %x, %x, %o;\nadd.s64 %y, %y, %o;\nand.b32 %lane, %t, 31;\nshr.u32 %warp, %t, 5;\nshl.b32 %warp, "
             "%warp, 2;\n") +
         "mov.f32 %f1, 0fFF800000;\n" + loop("maximum", 3, "max.f32 %f1, %f1, %f0;\n", "%d", next) +
         ".loc 1 4 3\nmov.b32 %r2, %f1;\n" + reduce("max.f32", "%r2") + ".loc 1 5 3\n" + share +
         "@%p1 st.shared.b32 [%r1], %r2;\n.loc 1 6 3\nbar.sync 0;\n" +
         ".loc 1 7 3\nld.shared.f32 %f8, [part];\nld.shared.f32 %f9, [part+4];\nmax.f32 %f1, %f8, %f9;\n" +
         (how.barrier ? ".loc 1 8 3\nbar.sync 0;\n" : "") + "mov.f32 %s, 0f00000000;\n" +
         (how.reads_too_far ? "add.s32 %limit, %d, 2048;\n" : "mov.b32 %limit, %d;\n") +
         loop("sum", 9, ".loc 1 10 5\n" + exp + "add.f32 %s, %s, %f5;\n" + rounds, "%limit", next) +
         ".loc 1 11 3\nmov.b32 %r2, %s;\n" + reduce("add.f32", "%r2") + ".loc 1 12 3\n" + share +
         "@%p1 st.shared.b32 [%r1], %r2;\n.loc 1 13 3\nbar.sync 0;\n.loc 1 14 3\n" +
         "ld.shared.f32 %f8, [part];\nld.shared.f32 %f9, [part+4];\nadd.f32 %s, %f8, %f9;\n" +
         (how.tail ? "mov.b32 %limit, %d;\n" : "and.b32 %limit, %d, -4;\n") +
         loop("write", 15,
              ".loc 1 16 5\n" + exp + "div.rn.f32 %f7, %f5, %s;\nadd.s64 %py, %y, %o;\nst.global.f32 [%py], %f7;\n",
              "%limit", how.ends ? next : std::string()) +
         "ret;\n}\n";
}

inline std::string softmax_launch() {
  return "name = \"row_softmax\"\nformula = \"e = exp(x - max(x, -1)); y = e / sum(e, -1)\"\ndims = { N = [3, 8, 2], D "
         "= { samples = [7, 129, 66], least = 1 } }\n"
         "inputs = { x = { dims = \"N D\", gradient = false } }\noutputs = { y = \"N D\" }\ncontract = { storage = "
         "[\"fp32\"] }\n"
         "[forward]\nkernel = \"softmax\"\ngrid = [\"N\"]\nblock = [64]\narguments = [\"const float* x\", \"float* "
         "y\", \"int D\"]\n";
}

}  // namespace ampcheck::testing
