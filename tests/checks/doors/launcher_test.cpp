// SPDX-License-Identifier: Apache-2.0
// Existing launchers described by TOML: right ones pass, broken ones are convicted, and whatever is wrong in a file is
// told with its line and column.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "checks/data/regimes.h"
#include "checks/doors/launcher_argument.h"
#include "checks/doors/launcher_toml.h"
#include "checks/doors/plugin.h"
#include "checks/run/runner.h"
#include "src/random.h"
#include "src/toml_file.h"
#include "tests/support/launcher_files.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::ProgramResult;

std::string error_of(const std::string& text) {
  try {
    op_of_toml(text, "my_op.toml");
  } catch (const PluginError& error) {
    return error.what();
  }
  return "no error";
}

/// Number of cases by code; "" for those that pass.
std::map<std::string, int> codes(const OpDef& op, CaseSet set, const std::vector<Dtype>& types, std::uint64_t seed) {
  std::map<std::string, int> out;
  for (const Dtype storage : types)
    for (const OpCall& call : cases_of(op.signature, storage, set, seed)) {
      const CaseResult result = run_case(op, call, {});
      ++out[convicts(result.verdict) ? ampcheck::name(result.code) : ""];
      if (convicts(result.verdict) && result.code == Code::ac501)
        ADD_FAILURE() << result.name << ": " << result.checks.back().cause;
    }
  return out;
}

TEST(Launchers, RightOnesPass) {
  const TomlOp made = op_of_toml(right_text(), kFolder + "rms_norm_launchers.toml");
  made.resolve();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto seen = codes(made.op, CaseSet::quick, made.op.signature.precision.storage, seed);
    EXPECT_EQ(seen.size(), 1u);
    EXPECT_TRUE(seen.contains("")) << seen.begin()->first;
  }
  const auto layouts = codes(made.op, CaseSet::standard, {Dtype::bf16}, 1);
  EXPECT_EQ(layouts.size(), 1u) << "strided cases";
}

TEST(Launchers, PromiseARange) {
  const OpSignature signature =
      op_of_toml(changed("strided = true }", "strided = true, loss_scales = [0.5, 65536], largest_input = 100 }"),
                 "x.toml")
          .op.signature;
  EXPECT_EQ(signature.range.smallest_scale, 0.5);
  EXPECT_EQ(signature.range.largest_scale, 65536);
  EXPECT_EQ(signature.range.largest_input, 100);
  EXPECT_FALSE(op_of_toml(right_text(), "x.toml").op.signature.range.declared());
}

TEST(Launchers, BrokenOnesAreConvicted) {
  for (const auto& [symbol, code] :
       std::map<std::string, std::string>{{"rms_norm_strides_of_x", "AC406"}, {"rms_norm_forgets_norm", "AC101"}}) {
    const TomlOp made = op_of_toml(changed("rms_norm_backward", symbol), kFolder + "x.toml");
    std::string usual;
    int most = 0;
    for (const auto& [seen, cases] : codes(made.op, CaseSet::standard, {Dtype::bf16}, 1))
      if (!seen.empty() && cases > most) {
        usual = seen;
        most = cases;
      }
    EXPECT_EQ(usual, code) << symbol;
  }
}

TEST(Launchers, ADoubleBackwardIsJudgedAsAnOpOfItsOwn) {
  const auto made = [](const std::string& symbol) {
    return op_of_toml("library = '" + kLibrary +
                          "'\nname = 'cube'\nformula = 'y = x * x * x'\ndims = { N = [35, 64, 2] }\ninputs = { x = 'N' "
                          "}\noutputs = { y = 'N' }\n"
                          "contract = { storage = ['fp32'] }\n"
                          "[forward]\nsymbol = 'cube'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
                          "[backward]\nsymbol = 'cube_backward'\narguments = ['const float* x', 'const float* dy', "
                          "'float* dx', 'int64_t N']\n"
                          "[double_backward]\nsymbol = '" +
                          symbol +
                          "'\narguments = ['const float* x', 'const float* dy', 'const float* dgrad_x', 'float* dx', "
                          "'float* ddy', 'int64_t N']\n",
                      kFolder + "x.toml");
  };
  const TomlOp right = made("cube_double_backward"), wrong = made("cube_double_backward_by_3");
  ASSERT_TRUE(right.backward_op && wrong.backward_op);
  EXPECT_EQ(codes(right.op, CaseSet::quick, {Dtype::fp32}, 1).size(), 1u);
  const auto seen = codes(*right.backward_op, CaseSet::quick, {Dtype::fp32}, 1);
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen.contains(""));
  const CaseResult convicted = run_case(
      *wrong.backward_op, parse_call("cube_backward(x=fp32[35],dy=fp32,seed=1)", wrong.backward_op->signature), {});
  EXPECT_EQ(convicted.code, Code::ac101);
  EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(convicted))), "backward dx");
  EXPECT_TRUE(contains(error_of("library = 'x.so'\nname = 'f'\ndims = { N = [2, 3, 4] }\ninputs = { x = 'N' }\noutputs "
                                "= { y = 'N' }\n[double_backward]\nsymbol = 'g'\n"),
                       "[my_op.toml:6:"))
      << "an op without a formula has none";
}

TEST(Launchers, OfFp8AreJudged) {
  const auto seen = [](const std::string& symbol) {
    const TomlOp made = op_of_toml("library = '" + kLibrary +
                                       "'\nname = 'relu_fp8'\nformula = 'y = maximum(x, 0)'\ndims = { N = [35, 64, 2] "
                                       "}\ninputs = { x = { dims = 'N', gradient = false } }\noutputs = { y = 'N' }\n"
                                       "contract = { storage = ['e4m3fn'] }\n[forward]\nsymbol = '" +
                                       symbol + "'\narguments = ['const uint8_t* x', 'uint8_t* y', 'int64_t N']\n",
                                   kFolder + "x.toml");
    EXPECT_EQ(made.op.signature.precision.storage, std::vector<Dtype>{Dtype::e4m3fn});
    return codes(made.op, CaseSet::standard, {Dtype::e4m3fn}, 1);
  };
  const auto right = seen("relu_fp8"), wrong = seen("relu_fp8_flushes");
  EXPECT_EQ(right.size(), 1u);
  EXPECT_TRUE(right.contains(""));
  EXPECT_TRUE(wrong.contains("AC303")) << wrong.size();
}

/// Launchers with 32-bit indices and a quantized input; `pos` is how the index is declared, `forward` the launcher.
std::string gather_text(const std::string& pos, const std::string& forward = "gather_i32") {
  return "library = '" + kLibrary +
         "'\nname = 'gathered'\nformula = 'y = gather(table, pos) * reshape(times, N, 1)'\ndims = { N = [5, 64, 2], V "
         "= [7, 40, 3], D = [3, 8, 33] }\n"
         "inputs = { table = 'V D', pos = { dims = 'N', role = 'index', index_dim = 'V' }, times = { dims = 'N', role "
         "= 'quantized' } }\noutputs = { y = 'N D' }\n"
         "contract = { storage = ['fp32'] }\n"
         "[forward]\nsymbol = '" +
         forward + "'\narguments = ['const float* table', '" + pos +
         "', 'const uint8_t* times', 'float* y', 'int N', 'int D', 'int stride(pos, 0)']\n"
         "[backward]\nsymbol = 'gather_i32_backward'\narguments = ['" +
         pos +
         "', 'const uint8_t* times', 'const float* dy', 'float* dtable', 'int N', 'int D', 'int stride(pos, 0)', 'int "
         "V']\n";
}

TEST(Launchers, IndicesAreNarrowedWhereTheLauncherTakes32Bits) {
  for (const char* const pos : {"const int32_t* pos", "const int* pos", "int32_t const* __restrict__ pos"}) {
    const auto seen = codes(op_of_toml(gather_text(pos), kFolder + "x.toml").op, CaseSet::standard, {Dtype::fp32}, 1);
    EXPECT_EQ(seen.size(), 1u) << pos;
    EXPECT_TRUE(seen.contains("")) << pos;
  }
  // A pointer that says nothing gets the int64 that the op has: low halves between zeros.
  const TomlOp wide = op_of_toml(gather_text("const void* pos"), kFolder + "x.toml");
  EXPECT_TRUE(convicts(
      run_case(wide.op, parse_call("gathered(table=fp32[7,3],pos=i64[5],seed=1)", wide.op.signature), {}).verdict));
  const TomlOp writing = op_of_toml(gather_text("int32_t* pos", "gather_i32_writing"), kFolder + "x.toml");
  const CaseResult written =
      run_case(writing.op, parse_call("gathered(table=fp32[7,3],pos=i64[5],seed=1)", writing.op.signature), {});
  EXPECT_EQ(written.code, Code::ac501);
  EXPECT_TRUE(contains(deciding_check(written)->cause, "'gather_i32_writing' wrote into an index"))
      << deciding_check(written)->cause;
}

/// A slip in the file, and what the error says of it.
struct Mistake {
  std::string from, to, want;
};
void expect_told(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    const std::string error = error_of(changed(mistake.from, mistake.to));
    EXPECT_TRUE(contains(error, mistake.want)) << "want " << mistake.want << "\ngot  " << error;
  }
}

TEST(Launchers, PointersAreHeldAgainstTheirTensors) {
  expect_told({
      {"\"const void* x\", \"const void* weight\", \"void* y\"",
       "\"const float* x\", \"const void* weight\", \"void* y\"",
       "[my_op.toml:21:15] argument, got const float* for 'x', which is fp32 or bf16 by the case, want const void* (or "
       "one storage type in the contract)"},
      {"\"const void* weight\", \"void* y\"", "\"const void* weight\", \"const void* y\"",
       "[my_op.toml:21:54] argument, got const void* for 'y', which the kernel writes, want void*"},
      {"\"float* inv_rms\"", "\"double* inv_rms\"",
       "argument, got double* for 'inv_rms', which is fp32, want void* or float*"},
      {"\"float* inv_rms\"", "\"float** inv_rms\"",
       "argument, got float** for 'inv_rms', which is passed as the address of its first element, want void* or "
       "float*"},
      {"\"const float* inv_rms\"", "\"const __half* inv_rms\"",
       "argument, got const __half* for 'inv_rms', which is fp32, want const void* or const float*"},
      {"\"void* dx\"", "\"void const * dx\"", "argument, got const void* for 'dx', which the kernel writes"},
      {"\"void* dx\", ", "",
       "[my_op.toml:29:1] arguments of [backward], got no 'dx', want such as \"void* dx\", or gradient = false for the "
       "input 'x'"},
      {"\"void* y\", ", "", "[my_op.toml:21:1] arguments of [forward], got no 'y', want such as \"void* y\""},
      {"\"float* inv_rms\", ", "", "arguments of [forward], got no 'inv_rms'"},
      {"role = \"weight\"", "role = \"index\", type = \"i32\"",
       "[my_op.toml:7:69] type, got 'i32', want none: an index is int64, and an argument \"const int32_t* weight\" "
       "gets a copy in int32"},
      {"role = \"weight\"", "role = \"weight\", type = \"u8\"",
       "[my_op.toml:7:53] role, want \"mask\" or \"quantized\" for \"u8\""},
  });
  EXPECT_TRUE(contains(error_of(gather_text("const uint16_t* pos")),
                       "got const uint16_t* for 'pos', which is int64, want const void* or const int64_t*, or const "
                       "int32_t* for a copy in int32"));
  const auto bf16 = [](const std::string& to) {
    std::string text = changed("contract = { storage = [\"fp32\", \"bf16\"]", "contract = { storage = [\"bf16\"]");
    const std::string from = "\"const void* x\"";
    for (std::size_t k = text.find(from); k != std::string::npos; k = text.find(from, k + to.size()))
      text.replace(k, from.size(), to);
    return error_of(text);
  };
  EXPECT_TRUE(contains(bf16("\"const float* x\""),
                       "got const float* for 'x', which is bf16, want const void* or const __nv_bfloat16*"))
      << bf16("\"const float* x\"");
  for (const char* const right : {"\"const __nv_bfloat16* x\"", "\"const uint16_t *x\"",
                                  "\"unsigned short* __restrict__ x\"", "\"const my::bf16x8* x\"", "\"void* const x\""})
    EXPECT_EQ(bf16(right), "no error");
}

TEST(Launchers, ArgumentsThatDoNotFitTheLauncherShow) {
  // What a slip in the file does: columns for rows, the wrong code of a dtype, zeroed memory taken for granted.
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"\"const int64_t* strides(x)\", \"const int64_t* strides(y)\"",
                                           "\"const int64_t* strides(y)\", \"const int64_t* strides(x)\""},
                                          {"\"float eps\"", "\"float 2 * eps\""},
                                          {"bf16 = 15", "bf16 = 0"}}) {
    const TomlOp made = op_of_toml(changed(from, to), kFolder + "x.toml");
    int failed = 0;
    for (const OpCall& call : cases_of(made.op.signature, Dtype::bf16, CaseSet::standard, 1)) {
      if (call.dims.at("N") > 64 || failed > 0) continue;
      failed += convicts(run_case(made.op, call, {}).verdict);
    }
    EXPECT_GT(failed, 0) << from;
  }
}

TEST(Launchers, ErrorsHaveLineAndColumn) {
  expect_told({
      {"inputs = {", "input = {", "[my_op.toml:7:1] file, got unknown key 'input' (did you mean 'inputs'?"},
      {"role = \"weight\"", "role = \"wieght\"",
       "[my_op.toml:7:53] role, got 'wieght' (did you mean 'weight'?), want data, weight"},
      {"dims = \"D\"", "dims = \"Q\"", "[my_op.toml:7:41] dims, got 'Q', want one of the dims N, D"},
      {"N = [5, 64, 2]", "N = [5, 64]", "[my_op.toml:6:14] dim 'N', want its extents in three sample shapes"},
      {"default = 1e-6", "default = \"small\"", "[my_op.toml:10:34] default, got a string, want a number"},
      {"name = \"launched_rms_norm\"", "name = \"no name\"",
       "[my_op.toml:4:1] name, got 'no name', want letters, digits and _"},
      {"mean(x^2, -1) + eps", "mean(x^2, -1) + epsilon", "[my_op.toml:15:49] formula: got unknown name 'epsilon'"},
      {"y = n * weight\"\"\"", "y = n * weihgt\"\"\"",
       "[my_op.toml:17:9] formula: got unknown name 'weihgt' (did you mean 'weight'?), want one of D, N, eps, inf, "
       "inv_rms, n, pi, weight, x\n  y = n * weihgt\n          ^"},
      {"\"int64_t N\", \"int D\",\n             \"const int64_t* strides(x)\", \"const int64_t* strides(y)\"",
       "\"int64_t M\", \"int D\",\n             \"const int64_t* strides(x)\", \"const int64_t* strides(y)\"",
       "[my_op.toml:21:91] argument, got unknown name 'M'"},
      {"\"float eps\"", "\"flaot eps\"", "[my_op.toml:23:15] argument, got type 'flaot' (did you mean 'float'?"},
      {"\"const void* dy\"", "\"const void* yy\"", "[my_op.toml:29:90] argument, got 'yy' for a pointer"},
      {"\"int dtype\"", "\"int dtype(nothing)\"", "want a tensor: inv_rms, weight, x, y"},
      {"workspace = \"4 * D\"\n", "", "argument, got a workspace without its size"},
      {"workspace = \"4 * D\"", "workspace = \"4 * (D\"", "[my_op.toml:28:20] argument, got the end, want ')'"},
      {"dtypes = { fp32 = 0, bf16 = 15 }", "dtypes = { fp32 = 0 }", "[my_op.toml:13:1] dtypes, got no code for bf16"},
      {"dtypes = { fp32 = 0, bf16 = 15 }", "", "argument, got dtype without codes"},
      {"symbol = { fp32 = \"rms_norm_backward_fp32\", bf16", "symbol = { fp32 = \"rms_norm_backward_fp32\", fp16",
       "symbol, got none for bf16"},
      {"returns = \"status\"", "returns = 3", "[my_op.toml:27:11] returns, got an integer, want a string"},
      {"[backward]", "[forward2]", "[my_op.toml:25:2] file, got unknown key 'forward2' (did you mean 'forward'?"},
      {"library = ", "summary = ", "got no TOML: "},
      {"of = [\"y\", \"dx\"]", "of = [\"y\", \"dz\"]",
       "[my_op.toml:11:21] rows, got 'dz', want an output or the gradient of an input"},
      {"storage = [\"fp32\", \"bf16\"]", "storage = [\"fp32\", \"bf61\"]",
       "storage, got 'bf61', want fp64, fp32, fp16, bf16, e4m3fn, e5m2"},
      {"strided = true }", "strided = true, loss_scales = [3, 8] }",
       "[my_op.toml:12:72] loss_scales, got 3 and 8, want powers of two"},
      {"strided = true }", "strided = true, loss_scales = [8] }",
       "[my_op.toml:12:72] loss_scales, want the smallest and the largest"},
      {"strided = true }", "strided = true, largest_input = -1 }", "largest_input, got -1, want 0 for none, or a size"},
  });
  EXPECT_TRUE(contains(error_of(""), "inputs, got none")) << error_of("");
  EXPECT_TRUE(contains(error_of("a = " + std::string(300, '[')), "[my_op.toml:1:")) << "nesting";
  std::string deep = "a";
  for (int i = 0; i < 100; ++i) deep += ".a";
  EXPECT_TRUE(contains(error_of(deep + " = 1"), "nested deeper")) << error_of(deep + " = 1");
  EXPECT_TRUE(contains(error_of(std::string(kMostTomlBytes + 1, '#')), "want at most")) << "size";
}

// The parser's own table of white space calls these letters unreachable: they were undefined behaviour wherever a value
// may end.
TEST(Launchers, LettersAreNoWhiteSpace) {
  for (const std::string letter : {"\u00a1", "\u00e9", "\u0200", "\u0499", "\u3100", "\ufc70", "\ufefe"}) {
    EXPECT_THROW(TomlFile("a = 1" + letter + "\n", "x.toml"), TomlError) << letter;
    EXPECT_THROW(TomlFile("a = 1 " + letter + "\n", "x.toml"), TomlError) << letter;
    EXPECT_THROW(TomlFile(letter + " = 1\n", "x.toml"), TomlError) << letter;
    EXPECT_EQ(TomlFile("a = \"" + letter + "\" # " + letter + "\n", "x.toml").root().entries.at(0).value.text, letter);
  }
}

TEST(Launchers, MangledFilesAreReadOrRefused) {
  const std::string right = right_text();
  int read = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    const Random random(seed, "mangle");
    std::string text = right;
    for (std::uint64_t k = 0; k < 1 + seed % 3; ++k) {
      const auto at = static_cast<std::size_t>(random.below(8 * k, text.size())),
                 from = static_cast<std::size_t>(random.below(8 * k + 1, text.size()));
      const auto length = static_cast<std::size_t>(random.below(8 * k + 2, 12));
      switch (random.below(8 * k + 3, 4)) {
        case 0: text[at] = static_cast<char>(random.below(8 * k + 4, 256)); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(from, length)); break;
        default: text.insert(at, std::string(1, "[]{}\"'=,.()#\n"[random.below(8 * k + 5, 14)])); break;
      }
    }
    try {
      op_of_toml(text, "my_op.toml");
      ++read;
    } catch (const PluginError& error) {
      ++refused;
      EXPECT_TRUE(contains(error.what(), "[my_op.toml:")) << error.what();
    }
  }
  EXPECT_GT(read, 20) << "a change of a comment is none of an op";
  EXPECT_GT(refused, 200);
}

/// A call of one tensor x [3, 4] with strides 8 and 2, eps = 0.5, N = 3.
struct SmallCall {
  std::int64_t shape[2] = {3, 4}, strides[2] = {8, 2};
  float data[24] = {};
  ac_tensor x = {sizeof(ac_tensor), AC_BF16, "x", {data, {AC_CPU, 0}, 2, {AC_DL_BFLOAT, 16, 1}, shape, strides, 0}};
  const ac_tensor* inputs[2] = {&x, nullptr};
  ac_attribute_value eps = {sizeof(ac_attribute_value), 0, "eps", 0.5};
  ac_call call = {};
  ArgumentNames names;

  SmallCall() {
    call.storage = AC_BF16;
    call.inputs = inputs;
    call.attributes = &eps;
    call.stream = &call;
    names.tensors = {{"x", {TensorSlot::List::inputs, 0}}, {"bias", {TensorSlot::List::inputs, 1}}};
    names.dims = {{"N", {{{TensorSlot::List::inputs, 1}, 0}, {{TensorSlot::List::inputs, 0}, 0}}}};
    names.attributes = {{"eps", 0}};
    names.dtype_codes = {{AC_BF16, 7}};
  }
  LauncherArgument::Value value(const std::string& text) const {
    return LauncherArgument::parse(text, names).evaluate({call, names, {{nullptr, 96}}});
  }
};

TEST(Launchers, ArgumentsAreWhatTheySay) {
  const SmallCall c;
  EXPECT_EQ(c.value("const __nv_bfloat16* __restrict__ x").pointer, c.data);
  EXPECT_EQ(c.value("unsigned short *x").pointer, c.data);
  EXPECT_EQ(c.value("const void *bias").pointer, nullptr);
  EXPECT_EQ(c.value("const int64_t* strides(x)").pointer, c.strides);
  EXPECT_EQ(c.value("int64_t* shape(x)").pointer, c.shape);
  EXPECT_EQ(c.value("cudaStream_t stream").pointer, &c.call);
  EXPECT_EQ(c.value("void* null").pointer, nullptr);
  EXPECT_EQ(c.value("int64_t N").i64, 3);
  EXPECT_EQ(c.value("int N * size(x, -1) - 2").i32, 10);
  EXPECT_EQ(c.value("unsigned int (N + 4) / 2").u32, 3u) << "whole numbers divide as in C";
  EXPECT_EQ(c.value("double N / 2").f64, 1.5);
  EXPECT_EQ(c.value("float -eps").f32, -0.5f);
  EXPECT_EQ(c.value("long long stride(x, 1)").i64, 2);
  EXPECT_EQ(c.value("size_t bytes(x)").u64, 24u);
  EXPECT_EQ(c.value("size_t count(bias)").u64, 0u);
  EXPECT_EQ(c.value("bool present(x)").boolean, 1);
  EXPECT_EQ(c.value("bool present(bias)").boolean, 0);
  EXPECT_EQ(c.value("int dtype").i32, 7);
  EXPECT_EQ(c.value("int dtype(x)").i32, 7);
  EXPECT_EQ(c.value("size_t workspace_bytes").u64, 96u);
  EXPECT_THROW(c.value("unsigned -N"), Error);
  EXPECT_THROW(c.value("int N * 1000000000"), Error);
  EXPECT_THROW(c.value("int eps"), Error) << "0.5 is no int";
  EXPECT_THROW(c.value("int N / 0"), Error);
  for (const char* wrong :
       {"", "int", "const void*", "x", "int x", "half x", "void* N", "int N +", "int (N", "int size(x)",
        "int size(x, 1.5)", "int* shape(x)", "cudaStream_t x", "int 1e999", "int N N", "int stride(N, 0)", "int f(x)"})
    EXPECT_THROW(c.value(wrong), ArgumentError) << wrong;
  EXPECT_THROW(c.value("int " + std::string(1000, '(')), ArgumentError);
  EXPECT_THROW(c.value("int " + std::string(1000, '-') + "1"), ArgumentError);
}

/// An op whose backward is two launches that share two workspaces, with a text replaced.
std::string two_launches(const std::string& from = "", const std::string& to = "") {
  std::string text = R"toml(library = "./rms_norm_launchers.so"
name = "scale_rows"
formula = "y = x * w"
dims = { N = [5, 64, 2], D = [7, 129, 33] }
inputs = { x = "N D", w = { dims = "D", role = "weight" } }
outputs = { y = "N D" }
contract = { storage = ["fp32"] }
[forward]
symbol = "scale_rows"
arguments = ["const float* x", "const float* w", "float* y", "int64_t N", "int64_t D"]
[backward]
symbol = "scale_rows_part"
workspaces = { partial = { bytes = "8 * D", zeroed = true }, parts = "4" }
arguments = ["const float* x", "const float* w", "const float* dy", "float* dx", "float* partial", "int* parts", "int64_t N", "int64_t D"]
[[backward.then]]
symbol = "scale_rows_finish"
returns = "status"
arguments = ["const float* partial", "const int* parts", "size_t bytes(partial)", "float* dw", "int64_t D"]
)toml";
  if (from.empty()) return text;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Launchers, TwoLaunchesShareTheirWorkspaces) {
  const auto found = [](const std::string& text) {
    const OpDef op = op_of_toml(text, kFolder + "scale.toml").op;
    std::map<std::string, int> out;
    for (const OpCall& call : cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1)) {
      const CaseResult result = run_case(op, call, {});
      ++out[convicts(result.verdict) ? ampcheck::name(result.code) : ""];
    }
    return out;
  };
  const auto right = found(two_launches());
  EXPECT_EQ(right.size(), 1u);
  EXPECT_GT(right.at(""), 10);
  EXPECT_GT(found(two_launches(", zeroed = true", "")).size(), 1u) << "sums begin at what was there: NaN";
  EXPECT_EQ(found(two_launches("8 * D", "8 * D + 4")).count(""), 0u) << "a status of the second launch";
  EXPECT_TRUE(found(two_launches("parts = \"4\"", "parts = \"0\"")).contains("AC501")) << "written outside";
  EXPECT_TRUE(found(two_launches("parts = \"4\"", "parts = \"1e300\"")).contains("AC501")) << "no such memory";
}

TEST(Launchers, MistakesInStepsAndWorkspacesAreTold) {
  const std::tuple<const char*, const char*, const char*> kMistakes[] = {
      {"parts = \"4\"", "x = \"4\"", "workspaces, got 'x', which names something else here, want another name"},
      {"parts = \"4\"", "stream = \"4\"", "workspaces, got 'stream', which is a word of its own"},
      {"parts = \"4\"", "parts = { byte = \"4\" }", "got unknown key 'byte' (did you mean 'bytes'?)"},
      {"parts = \"4\"", "parts = { zeroed = true }", "bytes, got none, want its size, such as \"4 * N\""},
      {"parts = \"4\"", "parts = \"bytes(partial)\"", "argument, got 'partial', want a tensor"},
      {"workspaces = { partial = { bytes = \"8 * D\", zeroed = true }, parts = \"4\" }", "workspaces = \"8 * D\"",
       "workspaces, got a string, want a table such as"},
      {"bytes(partial)", "bytes(partail)", "got 'partail'"},
      {"\"const int* parts\"", "\"const int* part\"", "got 'part' for a pointer (did you mean 'parts'?)"},
      {"[[backward.then]]", "[backward.then]",
       "then, got a table, want [[backward.then]] for each launch that follows"},
      {"symbol = \"scale_rows_finish\"", "symbols = \"f\"", "backward.then, got unknown key 'symbols' (did you mean"},
      {"\"float* dw\", ", "", "arguments of [backward], got no 'dw', want such as \"void* dw\""},
      {"returns = \"status\"", "workspace = \"4\"", "backward.then, got unknown key 'workspace'"}};
  for (const auto& [from, to, error] : kMistakes)
    EXPECT_TRUE(contains(error_of(two_launches(from, to)), error)) << to << ": " << error_of(two_launches(from, to));
}

/// An output without a cotangent is judged in forward, and backward gets nothing for it.
TEST(Launchers, AnOutputMayTakeNoCotangent) {
  const auto text = [](const std::string& divides, const std::string& more) {
    std::string out = two_launches("\"float* y\",", "\"float* y\", \"float* m\",");
    const auto change = [&](const std::string& from, const std::string& to) {
      EXPECT_NE(out.find(from), std::string::npos) << from;
      out.replace(out.find(from), from.size(), to);
    };
    change("y = x * w", "y = x * w; m = squeeze(mean(x, 0), 0)");
    change("{ y = \"N D\" }", "{ y = \"N D\", m = { dims = \"D\", cotangent = false } }");
    change("symbol = \"scale_rows\"", "symbol = \"scale_rows_mean\"");
    change("\"int64_t D\"]", "\"int64_t D\", \"int " + divides + "\"]");
    if (!more.empty()) change("\"const float* dy\"", "\"const float* dy\", " + more);
    return out;
  };
  const auto found = [&](const std::string& divides) {
    return codes(op_of_toml(text(divides, ""), kFolder + "x.toml").op, CaseSet::quick, {Dtype::fp32}, 1);
  };
  const auto right = found("1");
  EXPECT_EQ(right.size(), 1u);
  EXPECT_GT(right.at(""), 10);
  EXPECT_TRUE(found("0").contains("AC101")) << "a sum for the mean";
  EXPECT_TRUE(contains(error_of(text("1", "\"const float* dm\"")), "got 'dm' for a pointer"))
      << error_of(text("1", "\"const float* dm\""));
}

/// A tensor may have a symbol twice: it is square in every case.
TEST(Launchers, ASymbolMayComeTwiceInATensor) {
  const auto text = [](const std::string& backward) {
    return R"toml(library = "./rms_norm_launchers.so"
name = "add_transpose"
formula = "y = x + transpose(x)"
dims = { D = [5, 64, 3] }
inputs = { x = "D D" }
outputs = { y = "D D" }
contract = { storage = ["fp32"] }
[forward]
symbol = "add_transpose"
arguments = ["const float* x", "float* y", "int64_t D"]
[backward]
symbol = ")toml" +
           backward + "\"\narguments = [\"const float* dy\", \"float* dx\", \"int64_t D\"]\n";
  };
  const auto right =
      codes(op_of_toml(text("add_transpose"), kFolder + "x.toml").op, CaseSet::standard, {Dtype::fp32}, 1);
  EXPECT_EQ(right.size(), 1u);
  EXPECT_GT(right.at(""), 20);
  EXPECT_TRUE(codes(op_of_toml(text("copy_square"), kFolder + "x.toml").op, CaseSet::quick, {Dtype::fp32}, 1)
                  .contains("AC101"));
  EXPECT_TRUE(contains(error_of([&] {
                         std::string wrong = text("add_transpose");
                         return wrong.replace(wrong.find("\"D D\""), 5, "\"D E\"");
                       }()),
                       "dims, got 'E', want one of the dims D"));
}

}  // namespace
}  // namespace ampcheck::checks
