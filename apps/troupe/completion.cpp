#include "apps/troupe/completion.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// An option or positional argument.
struct argument {
  std::string name; ///< "--job"; empty for positional arguments
  std::string help;
  bool takes_value = false;
  bool file = false;
  bool directory = false;
  std::vector<std::string> choices;
};

struct command {
  std::string name; ///< empty for the program itself
  std::string help;
  std::vector<argument> arguments;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const auto comma = text.find(',');
    result.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return result;
}

argument describe(const CLI::Option& option, const std::string& name) {
  argument result;
  result.name = name;
  result.help = option.get_description();
  result.takes_value = option.get_items_expected_max() > 0;
  const auto type = option.get_type_name();
  result.file = type == "FILE";
  result.directory = type == "DIR";
  if (type.starts_with('{') && type.ends_with('}'))
    result.choices = split(std::string_view{type}.substr(1, type.size() - 2));
  return result;
}

/// Adds to `result` the subcommands of a command such as `bench`, and their options. The scripts
/// offer the names of subcommands like values of a positional argument. They do not know which
/// subcommand was typed, so they offer the options of all subcommands together. If several
/// subcommands have the same option, the scripts offer all its values.
void add_parts(const CLI::App& app, command& result);

command describe(const CLI::App& app) {
  command result{app.get_name(), app.get_description(), {}};
  for (const auto* option : app.get_options()) {
    if (option->get_group().empty())
      continue;
    if (option->get_positional())
      result.arguments.push_back(describe(*option, ""));
    for (auto& name : option->get_lnames())
      result.arguments.push_back(describe(*option, "--" + name));
  }
  if (app.get_parent() != nullptr)
    add_parts(app, result);
  return result;
}

void add_parts(const CLI::App& app, command& result) {
  argument parts;
  for (const auto* x : app.get_subcommands({})) {
    parts.choices.push_back(x->get_name());
    for (auto& option : describe(*x).arguments) {
      const auto known = std::ranges::find(result.arguments, option.name, &argument::name);
      if (known == result.arguments.end())
        result.arguments.push_back(std::move(option));
      else
        for (const auto& choice : option.choices)
          if (std::ranges::find(known->choices, choice) == known->choices.end())
            known->choices.push_back(choice);
    }
  }
  if (!parts.choices.empty())
    result.arguments.push_back(std::move(parts));
}

/// The program itself, followed by its commands.
std::vector<command> commands_of(const CLI::App& app) {
  std::vector<command> result{describe(app)};
  result.front().name.clear();
  for (const auto* x : app.get_subcommands({}))
    result.push_back(describe(*x));
  return result;
}

/// Puts a text in single quotes, so that bash, zsh and fish can read it.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (auto c : text)
    result += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return result + '\'';
}

// -- bash ---------------------------------------------------------------------------------------

constexpr std::string_view bash_body = R"script(
_troupe() {
  local current=${COMP_WORDS[COMP_CWORD]} command= option= i
  # An option and its value come in three words: --option, =, value.
  if [[ $current == = ]]; then
    option=${COMP_WORDS[COMP_CWORD-1]} current=
  elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    option=${COMP_WORDS[COMP_CWORD-2]}
  elif ((COMP_CWORD > 0)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == --* ]]; then
    option=${COMP_WORDS[COMP_CWORD-1]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi
  done
  COMPREPLY=()
  case "$command $option" in
)script";

constexpr std::string_view bash_end = R"script(  esac
  case $command in
)script";

constexpr std::string_view bash_close = R"script(  esac
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _troupe troupe
)script";

std::string bash_reply(const argument& x) {
  if (x.file)
    return "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")";
  if (x.directory)
    return "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$current\")";
  return fmt::format("mapfile -t COMPREPLY < <(compgen -W {} -- \"$current\")",
                     in_quotes(fmt::format("{}", fmt::join(x.choices, " "))));
}

std::string bash_script(const std::vector<command>& commands) {
  std::string result{bash_body};
  auto out = std::back_inserter(result);
  for (auto& x : commands)
    for (auto& y : x.arguments)
      if (y.takes_value && !y.name.empty())
        fmt::format_to(out, "    {}) {}; return ;;\n", in_quotes(x.name + ' ' + y.name),
                       bash_reply(y));
  result += bash_end;
  for (auto& x : commands) {
    std::vector<std::string> words;
    for (auto& y : x.arguments)
      if (y.name.empty())
        words.insert(words.end(), y.choices.begin(), y.choices.end());
      else
        words.push_back(y.takes_value ? y.name + '=' : y.name);
    if (x.name.empty())
      for (auto& y : commands)
        if (!y.name.empty())
          words.push_back(y.name);
    fmt::format_to(out, "    {}) mapfile -t COMPREPLY < <(compgen -W {} -- \"$current\") ;;\n",
                   in_quotes(x.name), in_quotes(fmt::format("{}", fmt::join(words, " "))));
  }
  result += bash_close;
  return result;
}

// -- zsh ----------------------------------------------------------------------------------------

/// Escapes a description for an argument of zsh's _arguments or _describe.
std::string zsh_help(std::string_view text) {
  std::string result;
  for (auto c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\')
      result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_value(const argument& x) {
  if (x.file)
    return ":file:_files";
  if (x.directory)
    return ":directory:_files -/";
  if (!x.choices.empty())
    return fmt::format(":value:({})", fmt::join(x.choices, " "));
  return x.takes_value ? ":value:" : "";
}

std::string zsh_script(const std::vector<command>& commands) {
  std::string result = "#compdef troupe\n\n_troupe() {\n  local -a commands=(\n";
  auto out = std::back_inserter(result);
  for (auto& x : commands)
    if (!x.name.empty())
      fmt::format_to(out, "    {}\n", in_quotes(x.name + ':' + zsh_help(x.help)));
  result += "  )\n  local command=${words[2]}\n"
            "  if ((CURRENT == 2)) && [[ $command != -* ]]; then\n"
            "    _describe command commands\n    return\n  fi\n"
            "  case $command in\n";
  for (auto& x : commands) {
    fmt::format_to(out, "    {})\n      shift words; ((CURRENT--))\n      _arguments",
                   x.name.empty() ? "-*" : x.name);
    for (auto& y : x.arguments)
      fmt::format_to(out, " \\\n        {}",
                     in_quotes(y.name.empty()
                                 ? "1" + zsh_value(y)
                                 : fmt::format("{}{}[{}]{}", y.name, y.takes_value ? "=" : "",
                                               zsh_help(y.help), zsh_value(y))));
    result += " ;;\n";
  }
  result += "  esac\n}\n\n"
            "if [[ $funcstack[1] == _troupe ]]; then\n  _troupe \"$@\"\nelse\n"
            "  compdef _troupe troupe\nfi\n";
  return result;
}

// -- fish ---------------------------------------------------------------------------------------

std::string fish_value(const argument& x) {
  if (x.file)
    return " -r -F";
  if (x.directory)
    return " -x -a '(__fish_complete_directories)'";
  if (!x.choices.empty())
    return fmt::format(" -x -a {}", in_quotes(fmt::format("{}", fmt::join(x.choices, " "))));
  return x.takes_value ? " -x" : "";
}

std::string fish_script(const std::vector<command>& commands) {
  std::string result = "complete -c troupe -f\n";
  auto out = std::back_inserter(result);
  for (auto& x : commands) {
    const auto when =
      x.name.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + x.name;
    if (!x.name.empty())
      fmt::format_to(out, "complete -c troupe -n __fish_use_subcommand -a {} -d {}\n", x.name,
                     in_quotes(x.help));
    for (auto& y : x.arguments)
      if (y.name.empty())
        fmt::format_to(out, "complete -c troupe -n {}{}\n", in_quotes(when), fish_value(y));
      else
        fmt::format_to(out, "complete -c troupe -n {} -l {}{} -d {}\n", in_quotes(when),
                       y.name.substr(2), fish_value(y), in_quotes(y.help));
  }
  return result;
}

} // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const auto commands = commands_of(app);
  const auto origin = fmt::format("made by `troupe completion {}`\n", shell);
  if (shell == "bash")
    return "# " + origin + bash_script(commands);
  if (shell == "zsh")
    return zsh_script(commands).insert(std::string_view{"#compdef troupe\n"}.size(), "# " + origin);
  if (shell == "fish")
    return "# " + origin + fish_script(commands);
  const std::vector<std::string> shells{"bash", "zsh", "fish"};
  throw input_error{
    fmt::format("completion: no script for shell \"{}\"; {}", shell, suggestion(shell, shells))};
}

} // namespace troupe
