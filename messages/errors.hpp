#pragma once

#include <caf/error.hpp>

#include <cstdint>
#include <string>

namespace troupe {

/// Errors between actors. Each has a text for the operator: which task failed, where, what was
/// expected, and how to fix it.
enum class errc : std::uint8_t {
  none = 0,
  /// The message belongs to a view that is not the current one. A view is the set of tasks that
  /// train together (OpenView in wire.proto).
  old_view,
  /// The worker of the gradient is treated as lost, so its gradients are refused (Fence in
  /// wire.proto). Other workers train its leases.
  fenced,
  /// A node cannot join, because it has another version of troupe or another job, or because the
  /// cluster has no such task.
  join_refused,
  /// The node has no actor with this name.
  no_such_endpoint,
  /// The connection to a peer broke, or the peer could not be reached in time.
  link_lost,
  /// A frame or header (wire.proto) has a wrong size or unknown field values.
  malformed,
  timed_out,
  /// The loss or a gradient is not finite.
  not_finite,
  /// The run was stopped by its operator.
  interrupted,
  /// Something else failed. The text describes it.
  failed,
  /// The input of a user or an embedding program is wrong: job, data, files.
  bad_input,
};

const char* to_string(errc x) noexcept;

/// An error of category "troupe". Its text is for the operator.
caf::error make_error(errc code, std::string text);
caf::error make_error(errc code);

/// The code of an error of category "troupe"; `errc::none` for any other error.
errc code_of(const caf::error& x) noexcept;

/// Describes any error for people, also errors of other categories.
std::string explain(const caf::error& x);

} // namespace troupe
