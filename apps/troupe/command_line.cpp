#include "apps/troupe/command_line.hpp"

#include "apps/troupe/gpus.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/formats/printable.hpp"
#include "messages/configure.hpp"

#include <CLI/CLI.hpp>
#include <caf/config.hpp>
#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace troupe {

namespace {

/// The options of a command, such as "--job", without the options for internal use.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> result;
  for (const auto* option : command.get_options())
    if (!option->get_group().empty())
      for (auto& name : option->get_lnames())
        result.push_back("--" + name);
  return result;
}

const CLI::App* find_command(const CLI::App& app, std::string_view name) {
  for (const auto* command : app.get_subcommands({}))
    if (command->get_name() == name)
      return command;
  return nullptr;
}

/// The words that name the command after "troupe", such as " bench cluster".
std::string name_of(const CLI::App& command) {
  const auto* parent = command.get_parent();
  return parent == nullptr ? std::string{} : name_of(*parent) + ' ' + command.get_name();
}

std::string unknown_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({}))
    names.push_back(command->get_name());
  return fmt::format("there is no command \"{}\"; {}", printable(word), suggestion(word, names));
}

} // namespace

std::string version_text() {
  std::string result = fmt::format("troupe {}\n", version());
  const auto line = [&](std::string_view what, std::string_view text) {
    result += fmt::format("  {:<14}{}\n", what, text);
  };
  constexpr std::string_view sanitizers = TROUPE_SANITIZE;
  line("build",
       sanitizers.empty() ? std::string{TROUPE_BUILD_TYPE}
                          : fmt::format("{}, sanitizers: {}", TROUPE_BUILD_TYPE, sanitizers));
  line("compiler", TROUPE_COMPILER);
  line("CAF", fmt::format("{}.{}.{}", CAF_MAJOR_VERSION, CAF_MINOR_VERSION, CAF_PATCH_VERSION));
  constexpr std::string_view architecture = TROUPE_ARCH;
  line("architecture", architecture.empty() ? "the compiler's default" : architecture);
  line("GPUs", gpus_here() ? "CUDA" : "no (built without CUDA)");
  result.pop_back();
  return result;
}

std::string unknown_word(const CLI::App& app, std::span<const char* const> arguments) {
  const CLI::App* command = nullptr;
  for (std::string_view argument : arguments) {
    if (!argument.starts_with('-')) {
      if (command) { // The argument is a value, or a subcommand.
        if (const auto* part = find_command(*command, argument))
          command = part;
        continue;
      }
      command = find_command(app, argument);
      if (!command)
        return unknown_command(app, argument);
      continue;
    }
    const auto& owner = command ? *command : app;
    const std::string name{argument.substr(0, argument.find('='))};
    if (!name.starts_with("--") || owner.get_option_no_throw(name))
      continue;
    return fmt::format("there is no option \"{}\" of troupe{}; {}", printable(argument),
                       command ? name_of(*command) : "", suggestion(name, option_names(owner)));
  }
  return "";
}

} // namespace troupe
