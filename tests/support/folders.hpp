#pragma once

#include <filesystem>
#include <string>

namespace troupe::test {

// Test programs contain the path of the sources from which they were built. So they can be run by
// hand, from any folder and without environment variables. tests/main.cpp defines these functions.

/// The root of the source tree.
std::filesystem::path source_folder();

/// The folder of the real data: TROUPE_DATA. If the variable is not set, main() sets it to the
/// folder that was given when the build was configured.
std::filesystem::path data_folder();

/// True if the data folder contains this file or folder. If not, the test case is reported as
/// skipped and must return.
bool has_data(const std::string& name);

} // namespace troupe::test
