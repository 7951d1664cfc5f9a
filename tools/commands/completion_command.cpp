// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck completion SHELL`: from the table of commands and options, so that no list is kept twice.
#include <fmt/format.h>

#include <array>

#include "tools/choose/command_table.h"
#include "tools/choose/option_parsing.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

/// "--jobs,-j" as its names.
std::vector<std::string> names_of(const OptionText& option) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < option.name.size();) {
    const std::size_t end = std::min(option.name.find(',', at), option.name.size());
    out.push_back(option.name.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string all_names(const CommandText& command) {
  std::string out;
  for (const OptionText& option : command.options)
    for (const std::string& name : names_of(option)) out += (out.empty() ? "" : " ") + name;
  return out;
}

/// A text between single quotes of a shell.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

/// A text in a description of zsh's _arguments, inside single quotes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out;
}

std::string bash_script(const std::vector<CommandText>& commands) {
  std::string names, cases;
  for (const CommandText& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    cases += fmt::format("    {}) options='{}' ;;\n", command.name, all_names(command));
  }
  return fmt::format(
      "# Completion of ampcheck for bash: source <(ampcheck completion bash)\n"
      "_ampcheck() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" command='' options='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    [[ ${{COMP_WORDS[i]}} == -* ]] || {{ command=\"${{COMP_WORDS[i]}}\"; break; }}\n"
      "  done\n"
      "  case \"$command\" in\n"
      "    '') COMPREPLY=($(compgen -W '{} --help --version --no-config --profile' -- \"$word\")); return ;;\n"
      "{}"
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _ampcheck ampcheck\n",
      names, cases);
}

std::string zsh_script(const std::vector<CommandText>& commands) {
  std::string out =
      "#compdef ampcheck\n"
      "# Completion of ampcheck for zsh: put it as _ampcheck into a folder of $fpath\n"
      "_ampcheck() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a commands=(\n";
  for (const CommandText& command : commands)
    out += fmt::format("      '{}:{}'\n", command.name, zsh_text(command.about));
  out +=
      "    )\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n";
  for (const CommandText& command : commands) {
    out += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const OptionText& option : command.options)
      for (const std::string& name : names_of(option))
        out += fmt::format("        '*{}[{}]{}' \\\n", name, zsh_text(option.text),
                           option.argument.empty() ? "" : ":" + zsh_text(option.argument) + ":_files");
    out += "        '*:file:_files'\n      ;;\n";
  }
  return out + "  esac\n}\n_ampcheck \"$@\"\n";
}

std::string fish_script(const std::vector<CommandText>& commands) {
  std::string out = "# Completion of ampcheck for fish: ampcheck completion fish | source\n";
  for (const CommandText& command : commands)
    out += fmt::format("complete -c ampcheck -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                       quoted(command.about));
  for (const CommandText& command : commands)
    for (const OptionText& option : command.options) {
      out += fmt::format("complete -c ampcheck -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : names_of(option))
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      out += fmt::format("{} -d {}\n", option.argument.empty() ? "" : " -r", quoted(option.text));
    }
  return out;
}

}  // namespace

ExitCode completion_command(const CompletionOptions& options) {
  using Script = std::string (*)(const std::vector<CommandText>&);
  constexpr std::array kShells = {Named<Script>{"bash", bash_script}, Named<Script>{"zsh", zsh_script},
                                  Named<Script>{"fish", fish_script}};
  const std::string script = choose("completion", options.shell, kShells)(command_table());
  write_stdout(options.json
                   ? json_text({{"schema", "ampcheck.completion/1"}, {"shell", options.shell}, {"script", script}})
                   : script);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
