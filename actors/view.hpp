#pragma once

#include "messages/caf_shim.hpp"
#include "messages/errors.hpp"
#include "messages/names.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

namespace proto {
class OpenView;
}

/// A task that is part of a `view`. `incarnation` identifies one start of the task: it changes when
/// the task starts again.
struct member {
  task_name task;
  std::uint64_t incarnation = 0;
  /// "host:port"; empty if the task runs in the coordinator's process.
  std::string address;
};

/// A numbered list of the tasks in a run. It is valid until the coordinator opens the next view. A
/// worker's rank is its position among the workers of the list.
struct view {
  std::uint64_t number = 0;
  /// In order of task name.
  std::vector<member> members;

  /// The tasks with this job (worker, ps, ...), in order of index.
  std::vector<member> of(job_kind job) const;
};

view from_proto(const proto::OpenView& x);
proto::OpenView to_proto(const view& x, const task_name& receiver);

/// Compares the view of a message (`theirs`) with the view of the actor that receives it (`mine`).
/// Returns an error if they differ.
std::optional<caf::error> refuse_other_view(std::uint64_t mine, std::uint64_t theirs);

/// Wraps a member function into a message handler that accepts messages of the actor's view and
/// refuses all others. Views are compared only here. `Self` has a member `view_number()`.
template <class Self, class Head, class... Out, class... Rest>
auto in_view(Self* self, caf::result<Out...> (Self::*handle)(const Head&, const Rest&...)) {
  return [self, handle](const Head& x, const Rest&... xs) -> caf::result<Out...> {
    if (auto error = refuse_other_view(self->view_number(), x.view()))
      return std::move(*error);
    return (self->*handle)(x, xs...);
  };
}

template <class Self, class Head, class... Rest>
auto in_view(Self* self, void (Self::*handle)(const Head&, const Rest&...)) {
  return [self, handle](const Head& x, const Rest&... xs) {
    if (!refuse_other_view(self->view_number(), x.view()))
      (self->*handle)(x, xs...);
  };
}

} // namespace troupe
