#pragma once

#include <stdexcept>

namespace troupe {

/// A user's input is wrong: a file, a field, a shape. The text names it (file, record, field or
/// tensor), and says what was expected and what to do. Programs end with exit code 2.
///
/// Thrown by parsers and builders only; nothing in a training step throws.
class input_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
  ~input_error() override;
};

} // namespace troupe
