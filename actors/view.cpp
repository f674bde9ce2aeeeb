#include "actors/view.hpp"

#include "messages/proto/wire.pb.h"

#include <algorithm>
#include <iterator>

namespace troupe {

std::vector<member> view::of(job_kind job) const {
  std::vector<member> result;
  std::ranges::copy_if(members, std::back_inserter(result),
                       [job](const member& x) { return x.task.job == job; });
  return result;
}

view from_proto(const proto::OpenView& x) {
  view result;
  result.number = x.view();
  for (auto& m : x.member()) {
    member y;
    if (from_proto(m.task(), y.task)) {
      y.incarnation = m.incarnation();
      y.address = m.address();
      result.members.push_back(std::move(y));
    }
  }
  std::ranges::sort(result.members, {}, &member::task);
  return result;
}

proto::OpenView to_proto(const view& x, const task_name& receiver) {
  proto::OpenView result;
  result.set_view(x.number);
  *result.mutable_task() = to_proto(receiver);
  for (auto& m : x.members) {
    auto* y = result.add_member();
    *y->mutable_task() = to_proto(m.task);
    y->set_incarnation(m.incarnation);
    y->set_address(m.address);
  }
  return result;
}

std::optional<caf::error> refuse_other_view(std::uint64_t mine, std::uint64_t theirs) {
  if (mine == theirs)
    return std::nullopt;
  return make_error(errc::old_view,
                    "message of view " + std::to_string(theirs) + ", but this actor is in view "
                      + std::to_string(mine));
}

} // namespace troupe
