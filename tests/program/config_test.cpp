// SPDX-License-Identifier: Apache-2.0
// ampcheck.toml, and completion of a shell.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tools/choose/command_table.h"

namespace ampcheck::testing {
namespace {

class Config : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_.path() + "/repository/.git");
    std::filesystem::create_directories(folder_.path() + "/repository/kernels/deep");
  }
  void write(const std::string& text, const std::string& where = "repository") {
    std::ofstream(folder_.path() + "/" + where + "/ampcheck.toml") << text;
  }
  ProgramResult run(const std::string& arguments, const std::string& where = "repository") {
    return shell("cd '" + folder_.path() + "/" + where + "'; \"$AMPCHECK\" " + arguments);
  }

  TemporaryFolder folder_;
};

TEST_F(Config, SetsWhatTheCommandLineDoesNotSay) {
  write("[list]\ndtype = [\"bf16\"]\nregimes = \"quick\"\n");
  const std::string all = run("--no-config list --cases relu").out, few = run("list --cases relu").out;
  EXPECT_EQ(few, run("--no-config list --cases relu --dtype bf16 --regimes quick").out);
  EXPECT_LT(few.size(), all.size());
  EXPECT_EQ(run("list --cases relu --dtype fp32").out,
            run("--no-config list --cases relu --dtype fp32 --regimes quick").out)
      << "the command line wins";
  EXPECT_EQ(run("list --cases relu", "repository/kernels/deep").out, few) << "of a folder above";
}

TEST_F(Config, IsOfThisRepositoryAlone) {
  write("[list]\nregimes = \"quick\"\n", ".");
  EXPECT_EQ(run("list --cases relu").out, run("--no-config list --cases relu").out) << "above .git";
  EXPECT_NE(run("list --cases relu", ".").out, run("--no-config list --cases relu", ".").out);
}

TEST_F(Config, AVariableStandsBehindTheCommandLine) {
  write("[list]\nregimes = \"all\"\n");
  const auto list = [&](const std::string& variables, const std::string& options) {
    return shell("cd '" + folder_.path() + "/repository'; " + variables + " \"$AMPCHECK\" " + options).out;
  };
  const std::string quick = list("", "--no-config list --cases relu --regimes quick");
  EXPECT_EQ(list("AMPCHECK_REGIMES=quick", "list --cases relu"), quick) << "before the file";
  EXPECT_EQ(list("AMPCHECK_REGIMES=all", "list --cases relu --regimes quick"), quick) << "the command line wins";
  EXPECT_EQ(list("AMPCHECK_REGIMES=quick", "--no-config list --cases relu"), list("", "--no-config list --cases relu"));
  const std::string shown = list("AMPCHECK_REGIMES=quick AMPCHECK_PLANTED=1", "config list --show");
  EXPECT_TRUE(contains(shown, "--regimes quick") && contains(shown, "AMPCHECK_REGIMES\n")) << shown;
  EXPECT_TRUE(contains(shown, "--planted") && contains(shown, "ampcheck.toml:2")) << shown;
  for (const std::string wrong : {"AMPCHECK_REGIMES=qiuck", "AMPCHECK_PLANTED=perhaps"}) {
    const ProgramResult run = shell(wrong + " \"$AMPCHECK\" list relu");
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_TRUE(contains(run.err, wrong.substr(0, wrong.find('=')))) << run.err;
  }
}

TEST_F(Config, AProfileComesBeforeTheRest) {
  write(
      "[list]\nregimes = \"all\"\ndtype = \"bf16\"\n[profile.pr.list]\nregimes = "
      "\"quick\"\n[profile.night.check]\nseeds = 4\n");
  const std::string quick = run("--no-config list --cases relu --regimes quick --dtype bf16").out;
  EXPECT_EQ(run("--profile pr list --cases relu").out, quick);
  EXPECT_EQ(shell("cd '" + folder_.path() + "/repository'; AMPCHECK_PROFILE=pr \"$AMPCHECK\" list --cases relu").out,
            quick);
  EXPECT_NE(run("--profile night list --cases relu").out, quick);
  const std::string shown = run("--profile pr config --show").out;
  EXPECT_TRUE(contains(shown, "ampcheck.toml:5")) << shown;
  const ProgramResult unknown = run("--profile nihgt list relu");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "did you mean 'night'")) << unknown.err;
  write("[profile.pr.lsit]\nregimes = \"quick\"\n");
  EXPECT_EQ(run("list relu").exit_code, 2) << "a mistake in a profile shows at once";
}

TEST_F(Config, ShowsEachValueWithItsOrigin) {
  write(
      "# settings\n[gate]\nbaseline = \"base\"\nstrict = true\n[check]\ndtype = [\"bf16\", \"fp32\"]\nverbose = "
      "false\n");
  const ProgramResult show = run("config --show", "repository/kernels");
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_TRUE(contains(show.out, "--baseline ../base") && contains(show.out, "../ampcheck.toml:3")) << show.out;
  EXPECT_TRUE(contains(show.out, "--strict") && contains(show.out, "../ampcheck.toml:4")) << show.out;
  EXPECT_TRUE(contains(show.out, "--dtype bf16 --dtype fp32")) << show.out;
  EXPECT_FALSE(contains(show.out, "--verbose")) << show.out;
  const std::string gate = run("config gate --show").out;
  EXPECT_FALSE(contains(gate, "--dtype")) << gate;
  EXPECT_EQ(run("config gaet --show").exit_code, 2);
  EXPECT_TRUE(contains(run("config --show", ".").out, "no ampcheck.toml"));
}

TEST_F(Config, AMistakeIsTwoWithItsPlace) {
  for (const auto& [text, words] : {std::pair{"[check]\nregime = \"quick\"\n", "did you mean 'regimes'?"},
                                    {"[chekc]\n", "did you mean 'check'?"},
                                    {"[check]\nregimes = \"quik\"\n", "[ampcheck.toml:2] [--regimes] got 'quik'"},
                                    {"[check]\nverbose = \"yes\"\n", "want true or false"},
                                    {"[check]\nregimes = true\n", "want a string, a number"},
                                    {"check = 1\n", "want a table of options"},
                                    {"[check\n", "ampcheck.toml:1"}}) {
    write(text);
    const ProgramResult refused = run("check relu");
    EXPECT_EQ(refused.exit_code, 2) << text << refused.out;
    EXPECT_TRUE(contains(refused.err, words)) << text << refused.err;
  }
}

TEST(Completion, NamesEveryCommandAndOptionForEveryShell) {
  for (const char* shell_name : {"bash", "zsh", "fish"}) {
    const std::string script = ampcheck(std::string("completion ") + shell_name).out;
    for (const tools::CommandText& command : tools::command_table()) {
      EXPECT_TRUE(contains(script, command.name)) << shell_name;
      for (const tools::OptionText& option : command.options) {
        const std::string name = option.name.substr(option.name.find("--") + 2);
        EXPECT_TRUE(contains(script, name.substr(0, name.find(',')))) << shell_name << " " << option.name;
      }
    }
  }
  EXPECT_EQ(ampcheck("completion tcsh").exit_code, 2);
}

/// A shell that starts in such a folder would have no completion, and a message at each start.
TEST(Completion, AWrongConfigIsNoneOfItsBusiness) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/ampcheck.toml") << "[check]\nno_such_key = 1\n";
  const auto here = [&](const std::string& words) {
    return shell("cd '" + folder.path() + "'; \"$AMPCHECK\" " + words);
  };
  EXPECT_EQ(here("list").exit_code, 2);
  const ProgramResult bash = here("completion bash");
  EXPECT_EQ(bash.exit_code, 0) << bash.err;
  EXPECT_TRUE(contains(bash.out, "complete -")) << bash.out;
}

TEST(Completion, BashCompletes) {
  const auto complete = [](const std::string& words, int place) {
    return shell("eval \"$(\"$AMPCHECK\" completion bash)\"; COMP_WORDS=(" + words +
                 "); COMP_CWORD=" + std::to_string(place) + "; _ampcheck; printf '%s\\n' \"${COMPREPLY[@]}\" | sort");
  };
  if (shell("test -n \"$BASH_VERSION\"").exit_code == 0) {
    EXPECT_EQ(complete("ampcheck ch", 1).out, "check\n");
    EXPECT_EQ(complete("ampcheck check --sha", 2).out, "--shapes\n--shard\n");
  } else {
    const std::string script =
        "eval \"$(\"$AMPCHECK\" completion bash)\"; COMP_WORDS=(ampcheck check --sha); COMP_CWORD=2; "
        "_ampcheck; printf \"%s\\\\n\" \"${COMPREPLY[@]}\" | sort";
    EXPECT_EQ(shell("export AMPCHECK; bash -c '" + script + "'").out, "--shapes\n--shard\n");
  }
}

/// Where these shells are installed they read the script.
TEST(Completion, ShellsReadTheScript) {
  const TemporaryFolder folder;
  for (const char* name : {"bash", "zsh", "fish"}) {
    if (shell(std::string("command -v ") + name).exit_code != 0) continue;
    const ProgramResult read =
        shell("cd '" + folder.path() + "'; \"$AMPCHECK\" completion " + name + " > script; " + name + " -n script");
    EXPECT_EQ(read.exit_code, 0) << name << read.err;
  }
}

}  // namespace
}  // namespace ampcheck::testing
