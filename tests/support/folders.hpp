#pragma once

#include <filesystem>
#include <string>

namespace troupe::test {

// Test programs can be run by hand, from any folder and without environment variables, because they
// know the sources that they were built from. Defined in tests/main.cpp.

/// The root of the source tree.
std::filesystem::path source_folder();

/// The folder of the real data: TROUPE_DATA. If it is not set, main() sets it to the folder with
/// which the build was configured.
std::filesystem::path data_folder();

/// True if that folder contains this file or folder. If not, the test case counts as skipped and
/// must return.
bool has_data(const std::string& name);

} // namespace troupe::test
