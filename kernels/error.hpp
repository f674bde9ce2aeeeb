#pragma once

#include <stdexcept>

namespace troupe {

/// Reports a mistake in the user's input. The text names the place (file, record, field or tensor),
/// says what was expected, and says what to do. A program that catches this error ends with exit
/// code 2.
///
/// Parsers, data sets, and the builders of graphs and plans throw this error. The numerical code of
/// a training step never throws it.
class input_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
  ~input_error() override;
};

} // namespace troupe
