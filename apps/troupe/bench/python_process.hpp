#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace troupe::bench {

/// The Python interpreters to try, in order. If `python` is not empty, only `python`. Otherwise
/// python3 on the PATH, then /usr/bin/python3.
std::vector<std::string> pythons(const std::string& python);

/// How long a process may work on an answer.
inline constexpr std::chrono::minutes longest_answer{10};

/// A Python process that exchanges data with this program. The destructor ends the process. The
/// process has the same standard error as this program.
class python_process {
public:
  /// Throws input_error if the interpreter does not exist.
  /// @param threads number of threads for OpenMP and for libraries that multiply matrices
  python_process(const std::string& python, std::string_view script, std::size_t threads);
  ~python_process();
  python_process(const python_process&) = delete;
  python_process& operator=(const python_process&) = delete;

  /// Writes to the standard input of the process. Throws std::runtime_error if the process has
  /// ended.
  void tell(const void* bytes, std::size_t size);
  void tell(const std::string& text) { tell(text.data(), text.size()); }

  /// Reads the next line that the process writes to its standard output. Empty if the process has
  /// ended. Throws std::runtime_error if the process writes nothing for this time.
  std::string answer(std::chrono::milliseconds longest = longest_answer);

  /// Stops the process (SIGSTOP). It uses no processor time until go_on().
  void pause();
  void go_on();

  /// Closes the input of the process, and waits until the process has ended, but not longer than
  /// for an answer.
  void finish();

private:
  pid_t pid_ = 0;
  int socket_ = -1;
  std::string buffer_;
};

} // namespace troupe::bench
