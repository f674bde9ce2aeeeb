#pragma once

#include "actors/replica/replica_store.hpp"
#include "kernels/devices/device_error.hpp"
#include "messages/buffer.hpp"
#include "messages/errors.hpp"
#include "messages/interfaces.hpp"
#include "messages/synchronizer.hpp"

#include <exception>
#include <string>
#include <utility>

// Functions for synchronizers that hold a replica of the weights.

namespace troupe {

/// The message with the newest weights, for the worker's next step.
inline acquired acquired_from(replica_store& replica, step_number step) {
  acquired result;
  result.step = step;
  result.where = replica.home().where;
  for (auto& part : replica.to_train())
    result.ranges.push_back({part.begin, {part.version}, std::move(part.data)});
  return result;
}

/// The part of the gradient that this message contributes. Empty if the gradient stays on a GPU.
inline payload gradient_of(const contribute& x) {
  return x.gradient.empty() ? payload{} : x.gradient.slice_floats(x.begin, x.end - x.begin);
}

/// Installs an exception handler: if a handler of the synchronizer throws device_error, the
/// synchronizer ends, and the worker reports why.
/// @param device replica_home::device
template <class Synchronizer>
void report_device_errors(Synchronizer& self, worker_actor worker, std::string device) {
  self.set_exception_handler([&self, worker = std::move(worker),
                              device = std::move(device)](std::exception_ptr& x) -> caf::error {
    try {
      std::rethrow_exception(x);
    } catch (const device_error& error) {
      const auto text = device + ": " + error.what();
      caf::anon_send(worker, broken{text});
      return make_error(errc::failed, text);
    } catch (...) {
      return Synchronizer::default_exception_handler(&self, x);
    }
  });
}

} // namespace troupe
