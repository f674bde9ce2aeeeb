#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace troupe {

/// Version, build type, compiler, actor framework and architecture of this program.
std::string version_text();

/// Explains arguments that could not be parsed: names the first word that is neither a command nor
/// an option of its command, with the nearest valid name. Empty if the problem is a different one.
std::string unknown_word(const CLI::App& app, std::span<const char* const> arguments);

} // namespace troupe
