#pragma once

#include <filesystem>
#include <string>

namespace troupe::test {

// Test programs can be run by hand, from any folder and without environment variables: they know
// what they were built from. Defined in tests/main.cpp.

/// The root of the sources.
std::filesystem::path source_folder();

/// The folder of the real data: TROUPE_DATA, which main() sets to the folder that the build was
/// configured with where it is not set.
std::filesystem::path data_folder();

/// Whether that folder has this file or folder. If not, the test case counts as skipped and
/// returns.
bool has_data(const std::string& name);

} // namespace troupe::test
