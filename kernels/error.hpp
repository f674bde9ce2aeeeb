#pragma once

#include <stdexcept>

namespace troupe {

/// The user's input is wrong: a file, a field, a shape. The text names it (file, record, field or
/// tensor), and says what was expected and what to do. Programs then end with exit code 2.
///
/// Only parsers and builders throw it; nothing in a training step does.
class input_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
  ~input_error() override;
};

} // namespace troupe
