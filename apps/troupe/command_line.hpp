#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace troupe {

/// Version, build type, compiler, actor framework and architecture of this program.
std::string version_text();

/// Explains arguments that could not be parsed. The text names the first word that is neither a
/// command nor an option, and the most similar valid word. Empty if all words are valid.
std::string unknown_word(const CLI::App& app, std::span<const char* const> arguments);

} // namespace troupe
