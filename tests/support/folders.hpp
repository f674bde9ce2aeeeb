#pragma once

#include <filesystem>
#include <string>

namespace troupe::test {

// The paths of the sources and of the data are compiled into test programs. So these can be run by
// hand, from any folder and without environment variables. tests/main.cpp defines these functions.

/// The root of the source tree.
std::filesystem::path source_folder();

/// The folder of real data, from the environment variable TROUPE_DATA. If it is not set, main()
/// sets it to the folder with which the build was configured.
std::filesystem::path data_folder();

/// True if the data folder contains this file or folder. If not, reports the test case as skipped;
/// the case must then return.
bool has_data(const std::string& name);

} // namespace troupe::test
