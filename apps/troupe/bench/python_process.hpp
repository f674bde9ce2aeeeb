#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace troupe::bench {

/// Where to look for an interpreter: at `python` or, if that is empty, python3 on the PATH and then
/// /usr/bin/python3.
std::vector<std::string> pythons(const std::string& python);

/// A Python process that reads from and writes to this program; it ends with this object. What it
/// writes to standard error is shown.
class python_process {
public:
  /// Throws input_error if there is no such program.
  /// @param threads of OpenMP and of the libraries that multiply matrices
  python_process(const std::string& python, std::string_view script, std::size_t threads);
  ~python_process();
  python_process(const python_process&) = delete;
  python_process& operator=(const python_process&) = delete;

  /// Throws std::runtime_error if the process has ended.
  void tell(const void* bytes, std::size_t size);
  void tell(const std::string& text) { tell(text.data(), text.size()); }

  /// A line; empty if the process has ended.
  std::string answer();

  /// Stops it: it takes no processor time until it is resumed.
  void pause();
  void go_on();

private:
  pid_t pid_ = 0;
  int socket_ = -1;
  std::string buffer_;
};

} // namespace troupe::bench
