#pragma once

#include <stdexcept>

namespace troupe {

/// A device cannot do what was requested: the device is missing, its memory is too small, or it
/// failed. The text says what was requested, what was found, and what to do.
class device_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

} // namespace troupe
