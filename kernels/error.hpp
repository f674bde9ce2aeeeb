#pragma once

#include <stdexcept>

namespace troupe {

/// The user's input is wrong. The text names the place (file, record, field or tensor), what was
/// expected, and what to do. Programs then end with exit code 2.
///
/// Only parsers and builders throw it, never a training step.
class input_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
  ~input_error() override;
};

} // namespace troupe
