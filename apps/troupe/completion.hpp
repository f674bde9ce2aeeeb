#pragma once

#include <string>

namespace CLI {
class App;
}

namespace troupe {

/// A script that completes this program's command line in a shell, made from its commands and
/// options. What an option's value may be is read from the name of its type: "FILE", "DIR", or a
/// choice such as "{ring,sync_ps}".
/// @param shell bash, zsh or fish
/// @throws input_error for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

} // namespace troupe
