// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/options.h"

#include <algorithm>
#include <filesystem>

#include "checks/train/net.h"
#include "src/suggestion.h"
#include "tools/choose/command_line.h"
#include "tools/choose/command_table.h"
#include "tools/choose/config_file.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

template <class O>
void CommandLine::add() {
  const CommandRow& row = command_rows()[commands.size()];
  CLI::App* const command = app.add_subcommand(row.name, row.about);
  auto& owned = std::get<std::unique_ptr<O>>(all_);
  owned = std::make_unique<O>();
  O* const options = owned.get();
  options->verb = row.name;
  command->add_flag("--json", options->json, row.json);
  add_options(command, *options);
  commands.push_back(command);
  taken_.emplace_back([options] { return AnyOptions(*options); });
}

CommandLine::CommandLine() : app("", "ampcheck") {
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "this text; after a command: its options");
  [this]<class... O>(const std::variant<O...>*) { (add<O>(), ...); }(static_cast<const AnyOptions*>(nullptr));
}

namespace {

std::vector<std::string> flags_of(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// CLI11's message, or for an unknown word our own with the nearest known one.
[[noreturn]] void fail_parse(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App* const verb = chosen.empty() ? &app : chosen.front();
  const std::string where = chosen.empty() ? "" : " " + verb->get_name();
  for (const std::string& word : app.remaining(true)) {
    if (word.empty() || word == "--") continue;
    if (word.front() == '-')
      throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] got unknown option '" + word + "'" +
                       did_you_mean(word, flags_of(verb)) + "; ampcheck" + where + " --help lists them");
    throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] got '" + word +
                     "', want no further argument");
  }
  throw UsageError("[" + (chosen.empty() ? "ampcheck" : verb->get_name()) + "] " + error.what() + " (see ampcheck" +
                   where + " --help)");
}

void require_verb(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (!word.empty() && word.front() == '-') return;
  std::vector<std::string> verbs;
  std::string list;
  for (const CommandRow& row : command_rows()) {
    if (row.name == word) return;
    verbs.emplace_back(row.name);
    list += (list.empty() ? "" : ", ") + std::string(row.name);
  }
  if (word.empty())
    throw UsageError("got no command, want " + list +
                     "\n(ampcheck check judges all built-in ops; ampcheck --help says more)");
  throw UsageError("got unknown command '" + word + "'" + did_you_mean(word, verbs) + ", want " + list);
}

/// The command that `mutate` runs stands behind "--": taken off the words.
std::vector<std::string> take_command(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "mutate") return {};
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    std::vector<std::string> out(argv + i + 1, argv + argc);
    argc = i;
    return out;
  }
  return {};
}

/// A negative infinity or NaN looks like an option; a blank in front makes it a value.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> out(argv + 1, argv + argc);
  if (!out.empty() && out.front() == "formats")
    for (std::string& word : out)
      if (word.starts_with("-") && parse_number(word)) word.insert(0, " ");
  std::reverse(out.begin(), out.end());  // CLI11 takes them from the back
  return out;
}

/// The place of the chosen command in the rows; none for the program's own options.
std::optional<std::size_t> chosen_command(const CommandLine& line) {
  const std::vector<CLI::App*> chosen = line.app.get_subcommands();
  if (chosen.empty()) return std::nullopt;
  return static_cast<std::size_t>(std::find(line.commands.begin(), line.commands.end(), chosen.front()) -
                                  line.commands.begin());
}

/// What the parser alone does not see.
struct Completion {
  void operator()(CommonOptions&) const {}
  void operator()(CaseOptions& o) const { require_consistent(o); }
  void operator()(FormatsOptions& o) const {
    for (std::string& word : o.values)
      if (word.starts_with(" ")) word.erase(0, 1);
  }
};

/// The options of a check that change its results, as a command line: those of its reports, files and parts are out.
std::vector<std::string> arguments_of(const CLI::App& check) {
  static const std::vector<std::string> kNoResult = {"help",     "json",    "output", "verbose",
                                                     "jobs",     "journal", "memory", "time-budget",
                                                     "run-file", "shard",   "engine", "no-times"};
  std::vector<std::string> out, words;
  for (const CLI::Option* option : const_cast<CLI::App&>(check).get_options()) {
    if (option->count() == 0) continue;
    if (option->get_lnames().empty()) {
      words.insert(words.end(), option->results().begin(), option->results().end());
      continue;
    }
    const std::string& name = option->get_lnames().front();
    if (std::find(kNoResult.begin(), kNoResult.end(), name) != kNoResult.end()) continue;
    for (const std::string& value : option->results())
      out.push_back("--" + name + (option->get_items_expected_max() == 0 ? "" : "=" + value));
  }
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

const CLI::App& command_named(const CommandLine& line, const std::string& name) {
  return *line.app.get_subcommand(name);
}

/// `train mlp`: a net that comes with the program instead of a file, as the other commands take it.
void take_model_word(const CLI::App& command, TrainOptions& train) {
  const auto nets = checks::train::nets();
  const bool known = std::any_of(nets.begin(), nets.end(),
                                 [&](const checks::train::NetInfo& net) { return net.name == train.config; });
  if (known) {
    if (command.get_option("--model")->count() > 0)
      throw UsageError("[--model] got '" + train.model + "' beside '" + train.config + "', want one of them");
    train.model = train.config;
    train.config.clear();
  } else if (!train.config.ends_with(".toml") && !std::filesystem::exists(train.config)) {
    throw UsageError("[train] got '" + train.config + "', want mlp, conv, transformer, tutorial or a net's FILE.toml");
  }
}

/// Settings in the file of a net that is trained, or whose memory is asked for.
void take_file_settings(CommandLine& line, const std::string& verb) {
  TrainOptions& train = line.options<TrainOptions>();
  if (verb == "train" && !train.config.empty()) {
    take_model_word(command_named(line, "train"), train);
    if (!train.config.empty()) take_settings(command_named(line, "train"), command_named(line, "train"), train.config);
  }
  if (verb == "diagnose")
    for (const std::string& word : line.options<DiagnoseOptions>().words)
      if (word.ends_with(".toml")) take_settings(command_named(line, "train"), command_named(line, "diagnose"), word);
  MemoryOptions& memory = line.options<MemoryOptions>();
  if (verb != "memory" || !memory.model.ends_with(".toml")) return;
  const bool given = memory.dtype.has_value();
  take_settings(command_named(line, "train"), command_named(line, "memory"), memory.model);
  // A net that is trained in fp32: what 16 bits would take is asked.
  if (!given && memory.dtype == Dtype::fp32) memory.dtype.reset();
}

}  // namespace

AnyOptions parse_options(int argc, char** argv, std::optional<std::string>& help) {
  CommandLine line;
  bool version = false, no_config = false;
  std::string profile;
  line.app.add_flag("--no-config", no_config, "leave ampcheck.toml and the environment alone");
  line.app.add_option("--profile", profile, "take the settings of this profile of ampcheck.toml first");
  line.app.add_flag("--version", version, "version, as the command of that name");
  if (argc == 2 && std::string_view(argv[1]) == "--version") return line.options<VersionOptions>();
  require_verb(argc, argv);
  const std::vector<std::string> to_run = take_command(argc, argv);
  try {
    line.app.parse(arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    const std::optional<std::size_t> command = chosen_command(line);
    help = command ? command_help(command_table().at(*command), help_width()) : program_help(help_width());
    return VersionOptions();
  } catch (const CLI::ParseError& error) {
    fail_parse(line.app, error);
  }
  const std::size_t command = chosen_command(line).value();
  const bool of_a_shell =
      std::string_view(command_rows()[command].name) == "completion";  // in whatever folder it starts
  if (!no_config && !of_a_shell) {
    std::string path;
    take_config(project_settings(path, chosen_profile(profile), line.commands), *line.commands[command]);
  }
  take_file_settings(line, command_rows()[command].name);
  std::vector<std::string>& mutated = line.options<MutateOptions>().words;
  if (mutated.size() > 1)
    throw UsageError("[mutate] got '" + mutated[1] + "' beside '" + mutated[0] + "', want the build command behind --");
  mutated.insert(mutated.end(), to_run.begin(), to_run.end());
  AnyOptions options = line.options_of(command);
  if (CheckOptions* const check = std::get_if<CheckOptions>(&options))
    check->arguments = arguments_of(*line.commands[command]);
  if (ConfigOptions* const config = std::get_if<ConfigOptions>(&options)) config->profile = chosen_profile(profile);
  std::visit(Completion(), options);
  return options;
}

}  // namespace ampcheck::tools
