// SPDX-License-Identifier: Apache-2.0
// Small changes of a source, and `ampcheck mutate`: which of them a check sees.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/mutate/mutants.h"
#include "tools/mutate/source_tokens.h"

namespace ampcheck::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::contains;
using testing::ProgramResult;

std::vector<std::string> words(std::string_view source) {
  std::vector<std::string> out;
  for (const SourceToken& token : tokens_of(source)) out.emplace_back(token.text);
  return out;
}

TEST(SourceTokens, AreNoCommentsTextsAndDirectives) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("a/* + */+b // - c\n;"), (Words{"a", "+", "b", ";"}));
  EXPECT_EQ(words("#define X a + \\\n b\n# if 1 /* \n */ + 2\nx"), (Words{"x"}));
  EXPECT_EQ(words("f(\"a + \\\" b\", 'x', R\"q(+)\" )q\")"),
            (Words{"f", "(", "\"a + \\\" b\"", ",", "'x'", ",", "R\"q(+)\" )q\"", ")"}));
  EXPECT_EQ(words("1.5e-3f+0x1.8p+3-1'000u"), (Words{"1.5e-3f", "+", "0x1.8p+3", "-", "1'000u"}));
  EXPECT_EQ(words("x<<=y->z"), (Words{"x", "<<=", "y", "->", "z"}));
  EXPECT_EQ(words("\"open"), (Words{"\"open"})) << "to the end of the line";
  EXPECT_TRUE(words("/* open").empty());
}

/// "bound 1:5 '<' '<='" of every mutant.
std::vector<std::string> texts_of(std::string_view source) {
  std::vector<std::string> out;
  for (const Mutant& m : mutants_of(source, "_Float16"))
    out.push_back(std::string(name(m.kind)) + " '" + std::string(source.substr(m.offset, m.size)) + "' '" + m.by + "'");
  return out;
}

TEST(Mutants, AreOfEveryKind) {
  EXPECT_EQ(texts_of("void f(float* y, int n) {\n  float sum = 0.5f;\n  y[n] = sum * -2;\n}"),
            (std::vector<std::string>{"precision 'float' '_Float16'", "constant '0.5f' '(0.5f * 1.0078125f)'",
                                      "statement 'y[n] = sum * -2' ''", "index '' ' + 1'", "operator '*' '/'",
                                      "operator '-' ''", "constant '2' '3'"}));
  EXPECT_EQ(texts_of("void f(int n) { for (int i = 0; i < n; ++i) g(i, n); }"),
            (std::vector<std::string>{"bound '0' '1'", "bound '<' '<='", "bound '' ' - 1'", "statement 'g(i, n)' ''",
                                      "index 'i, n' 'n, i'"}));
}

TEST(Mutants, AreOfNoDescription) {
  EXPECT_TRUE(
      texts_of("const int dims[] = {1 + 2};\nstatic_assert(sizeof(int) == 4);\nnamespace a { int b = 3; }").empty());
  EXPECT_TRUE(texts_of("const ac_plugin* ampcheck_plugin_v1(void) { static int a; a = 1 + 2; return 0; }").empty());
  const std::vector<std::string> op = texts_of(
      "AMPCHECK_OP(f, op) {\n  op.dim(\"N\", 5, 64);\n  op.formula([](Expr x) { return x * 2; });\n"
      "  op.forward([]<class T>(Type<T>, const Call& call) { auto y = call.view<T>(\"y\"); y(0) = T(3); });\n}");
  EXPECT_EQ(op, (std::vector<std::string>{"statement 'y(0) = T(3)' ''", "constant '0' '1'", "constant '3' '4'"}));
}

TEST(Mutants, OfTemplatesAndPointersAreNone) {
  EXPECT_TRUE(
      texts_of("void f() { const float* x = call.view<const float>(\"x\"); std::vector<std::pair<int, int>> v; }")
          .empty());
  EXPECT_EQ(
      texts_of("bool f(int a, int b) { return a < b && b > 2; }"),
      (std::vector<std::string>{"operator '<' '<='", "operator '&&' '||'", "operator '>' '>='", "constant '2' '3'"}));
}

TEST(Mutants, AreTheSameEveryTimeAndSpreadEvenly) {
  const std::string source = testing::read_text(tests::in_source("/tests/custom_ops/rms_norm.cpp"));
  const std::vector<Mutant> all = mutants_of(source, "_Float16");
  ASSERT_GT(all.size(), 50u);
  std::set<std::string> changed;
  for (const Mutant& m : all) {
    const std::string text = m.applied(source);
    EXPECT_NE(text, source);
    EXPECT_TRUE(changed.insert(text).second) << m.diff(source) << " twice";
  }
  const std::vector<Mutant> few = spread(all, 5);
  ASSERT_EQ(few.size(), 5u);
  EXPECT_LT(few.front().line, 25);
  EXPECT_GT(few.back().line, 35);
  EXPECT_EQ(spread(all, 1000).size(), all.size());
}

/// A folder with a kernel in C, and the command that builds it.
class Mutate : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::shell("cc --version").exit_code != 0) GTEST_SKIP() << "there is no cc here";
    std::ofstream(folder_.path() + "/twice.c") << kKernel;
  }
  ProgramResult run(const std::string& options, const std::string& build = "") {
    const std::string plain =
        "cc -std=c11 -shared -fPIC -I " + tests::in_source("/src/api") + " twice.c -o libtwice.so";
    return testing::shell("cd '" + folder_.path() + "'; \"$AMPCHECK\" mutate twice.c " + options + " -- " +
                          (build.empty() ? plain : build));
  }

  // The first mutants of its body: two bounds that are seen, and one behind the last row of every case.
  static constexpr const char* kKernel = R"(#include <ampcheck/ampcheck_op.h>
static int32_t twice(const ac_tensor* from, const ac_tensor* to) {
  int64_t n = from->dl.shape[0];
  const float* x = from->dl.data;
  float* y = to->dl.data;
  if (n > 5000000) n = n - 7;
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
  return 0;
}
static int32_t forward(const ac_call* call) { return twice(call->inputs[0], call->outputs[0]); }
static int32_t backward(const ac_call* call) { return twice(call->cotangents[0], call->gradients[0]); }
static const ac_dim dims[] = {{sizeof(ac_dim), 0, "N", {5, 9, 2}, 0, 0}};
static const ac_input inputs[] = {{sizeof(ac_input), 0, "x", "N", 0, 0, 0, 0, 0}};
static const ac_output outputs[] = {{sizeof(ac_output), 0, "y", 0, 0, 0, 0}};
static const ac_form forms[] = {{sizeof(ac_form), 0, 0, "y = 2 * x"}};
static const int32_t storage[] = {AC_FP32};
static const ac_contract contract = {sizeof(ac_contract), 1, storage, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
const ac_plugin* ampcheck_plugin_v1(void) {
  static ac_op op = {.struct_size = sizeof(ac_op), .name = "twice", .contract = &contract, .inputs = inputs,
                     .input_count = 1, .outputs = outputs, .output_count = 1, .dims = dims, .dim_count = 1,
                     .forms = forms, .form_count = 1, .forward = forward, .backward = backward};
  static const ac_plugin plugin = {sizeof(ac_plugin), AMPCHECK_OP_ABI, "twice", 0, 1, 0, &op};
  return &plugin;
}
)";
  const testing::TemporaryFolder folder_;
};

TEST_F(Mutate, SaysWhatTheCheckSeesAndWhatItDoesNot) {
  const ProgramResult run = this->run("--check libtwice.so --regimes quick --shapes N=5 --jobs 2 --json");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const json report = json::parse(run.out);
  EXPECT_EQ(report.at("survived"), 0) << report;
  EXPECT_GE(report.at("killed"), 6) << report;
  bool behind_all_rows = false;
  for (const json& m : report.at("mutants")) {
    if (m.at("line") == 7 && m.at("to") == " - 1") {
      EXPECT_EQ(m.at("end"), "killed") << m;
      EXPECT_TRUE(contains(m.at("by"), "AC")) << m;
    }
    if (m.at("line") == 6 && m.at("from") == "7") {  // no case has as many elements
      EXPECT_EQ(m.at("end"), "changes no bit") << m;
      behind_all_rows = true;
    }
  }
  EXPECT_TRUE(behind_all_rows);
  EXPECT_EQ(testing::read_text(folder_.path() + "/twice.c"), kKernel) << "never changed in place";
  EXPECT_FALSE(fs::exists(folder_.path() + "/libtwice.so"));
  const ProgramResult strict = this->run("--check libtwice.so --regimes quick --shapes N=5 --strict --limit 4");
  EXPECT_EQ(strict.exit_code, 1) << strict.out;
  EXPECT_TRUE(contains(strict.out, "changes no bit  twice.c:6:")) << strict.out;
}

/// A check of one element never reaches what a kernel does with further ones.
TEST_F(Mutate, AWeakCheckHasSurvivors) {
  std::string kernel = kKernel;
  const std::string plain = "  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];";
  kernel.replace(kernel.find("  if (n > 5000000) n = n - 7;\n"), 30, "");
  kernel.replace(kernel.find(plain), plain.size(),
                 "  y[0] = 2 * x[0];\n  for (int64_t i = 1; i < n; ++i) y[i] = 2 * x[i];");
  std::ofstream(folder_.path() + "/twice.c") << kernel;
  const std::string options = "--check libtwice.so --regimes quick --strict --limit 6 ";
  const ProgramResult weak = run(options + "--shapes N=1");
  EXPECT_EQ(weak.exit_code, 1) << weak.out << weak.err;
  EXPECT_TRUE(contains(weak.out, "(--strict: survivors)") && contains(weak.out, "changes no bit  twice.c:7:"))
      << weak.out;
  const ProgramResult allowed = run(options + "--shapes N=1 --min-killed 0.1");
  EXPECT_EQ(allowed.exit_code, 0) << allowed.out << allowed.err;
  const ProgramResult full = run(options + "--shapes N=5");
  EXPECT_EQ(full.exit_code, 0) << full.out << full.err;
}

/// A change of what the compiler leaves out makes the same library: it is known without a judgement.
TEST_F(Mutate, TheSameCodeIsNotJudged) {
  std::string kernel = kKernel;
  kernel.replace(kernel.find("  if (n > 5000000) n = n - 7;\n"), 30, "  if (0 && n > 5000000) n = n - 7;\n");
  std::ofstream(folder_.path() + "/twice.c") << kernel;
  const ProgramResult run =
      this->run("--check libtwice.so --regimes quick --shapes N=5 --limit 5 --json",
                "cc -std=c11 -O2 -shared -fPIC -I " + tests::in_source("/src/api") + " twice.c -o libtwice.so");
  int same = 0;
  const json report = json::parse(run.out);
  for (const json& m : report.at("mutants")) {
    if (m.at("same_code") == true) {
      EXPECT_EQ(m.at("end"), "changes no bit") << m;
      ++same;
    }
    if (m.at("end") == "killed") {
      EXPECT_EQ(m.at("same_code"), false) << m;
    }
  }
  EXPECT_GE(same, 1) << report;
}

/// A program with the op in it judges itself, as one that tools/mutate_kernels links; here a script in its place, which
/// is the same file whatever the kernel is.
TEST_F(Mutate, AProgramIsAskedAsThisOneIs) {
  std::ofstream(folder_.path() + "/asked.sh")
      << "#!/bin/sh\n[ \"$1 $2\" = '--no-config gate' ] || exit 2\nshift 2\nexec '" << tests::in_build("/ampcheck")
      << "' --no-config gate ./libtwice.so \"$@\"\n";
  const std::string build = "'chmod +x asked.sh && cc -std=c11 -shared -fPIC -I " + tests::in_source("/src/api") +
                            " twice.c -o libtwice.so && cat asked.sh >program && chmod +x program'";
  const ProgramResult run =
      this->run("--program program --op twice --regimes quick --shapes N=5 --limit 4 --json", build);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const json report = json::parse(run.out);
  EXPECT_GE(report.at("killed"), 2) << report;
  EXPECT_EQ(report.at("survived"), 0) << report;
  const ProgramResult both = this->run("--program program --check libtwice.so", build);
  EXPECT_EQ(both.exit_code, 2) << both.out;
  EXPECT_TRUE(contains(both.err, "got --check and --program")) << both.err;
}

TEST_F(Mutate, RefusesWhatItCannotDo) {
  const std::pair<const char*, std::string> wrong[] = {
      {"want a path below this folder", "--check ../libtwice.so"},
      {"want a path below this folder", "--check " + folder_.path() + "2/libtwice.so"},
      {"no --check LIBRARY", ""},
      {"makes no 'libother.so'", "--check libother.so"},
      {"want a share from 0 to 1", "--check libtwice.so --min-killed 2"},
      {"regimes", "--check libtwice.so --regimes qiuck"}};
  for (const auto& [words, options] : wrong) {
    const ProgramResult got = run(options + " --limit 1");
    EXPECT_EQ(got.exit_code, 2) << options << got.out << got.err;
    EXPECT_TRUE(contains(got.err, words)) << got.err;
  }
  const std::string library = "cc -std=c11 -shared -fPIC -I " + tests::in_source("/src/api");
  const ProgramResult elsewhere =
      run("--check libtwice.so --limit 1", library + " " + folder_.path() + "/twice.c -o libtwice.so");
  EXPECT_EQ(elsewhere.exit_code, 2) << elsewhere.out;
  EXPECT_TRUE(contains(elsewhere.err, "builds another 'twice.c' than the copy's")) << elsewhere.err;
  const ProgramResult failing = run("--check libtwice.so --limit 1", "'echo no such luck >&2; exit 3'");
  EXPECT_EQ(failing.exit_code, 2) << failing.out;
  EXPECT_TRUE(contains(failing.err, "exit code 3") && contains(failing.err, "no such luck")) << failing.err;
  std::ofstream(folder_.path() + "/twice.c") << "int nothing;\n";
  EXPECT_EQ(run("--check libtwice.so").exit_code, 4);
}

TEST_F(Mutate, LeavesNothingBehind) {
  const ProgramResult run = testing::shell(
      "cd '" + folder_.path() +
      "'; mkdir tmp; TMPDIR=$PWD/tmp $AMPCHECK mutate twice.c --check libtwice.so --regimes quick "
      "-- 'sleep 1; cc -std=c11 -shared -fPIC -I " +
      tests::in_source("/src/api") + " twice.c -o libtwice.so' & pid=$!; sleep 3; kill -INT $pid; wait $pid");
  EXPECT_EQ(run.exit_code, 128 + SIGINT) << run.out << run.err;
  EXPECT_TRUE(fs::is_empty(folder_.path() + "/tmp"));
  EXPECT_EQ(testing::read_text(folder_.path() + "/twice.c"), kKernel);
}

/// A path below the folder may be spelt from the root, or through a folder above.
TEST_F(Mutate, TakesAPathHoweverItIsSpelt) {
  const std::string build =
      " -- cc -std=c11 -shared -fPIC -I " + tests::in_source("/src/api") + " twice.c -o libtwice.so";
  const std::string up = "../" + fs::path(folder_.path()).filename().string() + "/libtwice.so";
  for (const std::string& library : {folder_.path() + "/libtwice.so", up}) {
    const ProgramResult run = testing::shell("cd '" + folder_.path() +
                                             "'; \"$AMPCHECK\" mutate \"$PWD/twice.c\" --regimes quick --shapes N=5 " +
                                             "--limit 2 --json --check " + library + build);
    EXPECT_EQ(run.exit_code, 0) << library << run.out << run.err;
    EXPECT_EQ(json::parse(run.out).at("tried"), 2) << library << run.out;
  }
}

TEST_F(Mutate, ListsThemWithoutBuilding) {
  const ProgramResult list = testing::shell("cd '" + folder_.path() + "'; \"$AMPCHECK\" mutate twice.c --list");
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "twice.c:7:")) << list.out;
  EXPECT_FALSE(contains(list.out, "twice.c:12:")) << list.out;
}

}  // namespace
}  // namespace ampcheck::tools
