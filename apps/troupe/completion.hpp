#pragma once

#include <string>

namespace CLI {
class App;
}

namespace troupe {

/// A script that completes this program's command line in a shell. It is generated from the
/// commands and options. The type name of an option decides which values the shell offers: files
/// for "FILE", folders for "DIR", or the words of a choice such as "{ring,sync_ps}".
/// @param shell bash, zsh or fish
/// @throws input_error for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

} // namespace troupe
