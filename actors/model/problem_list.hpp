#pragma once

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A list of a job's problems. Each one begins with a field's path.
class problem_list {
public:
  /// Adds a problem. A problem that occurs several times for one field, as in repeated layers, is
  /// listed once.
  void add(const std::string& path, const std::string& what) {
    auto line = path + ": " + what;
    if (std::ranges::find(lines_, line) == lines_.end())
      lines_.push_back(std::move(line));
  }

  /// Adds the problem if `ok` is false.
  void require(bool ok, const std::string& path, const std::string& what) {
    if (!ok)
      add(path, what);
  }

  bool empty() const noexcept { return lines_.empty(); }

  void throw_if_any() const {
    std::string text;
    for (const auto& line : lines_)
      text += (text.empty() ? "" : "\n") + line;
    if (!text.empty())
      throw input_error(text);
  }

private:
  std::vector<std::string> lines_;
};

/// Checks Job.data, as `validate` does. Internal to actors/model.
void check_data(const proto::Data& data, data_from origin, problem_list& problems);

} // namespace troupe
