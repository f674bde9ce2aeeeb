#include "actors/ask.hpp"

#include "messages/errors.hpp"

#include <fmt/format.h>

namespace troupe::detail {

caf::error no_answer(const patience& how) {
  auto text =
    fmt::format("no answer and no data for {:g} s", static_cast<double>(how.all().count()) / 1000);
  if (how.field)
    text += fmt::format(". If the process or the network is only slow, raise {}", how.field);
  return make_error(errc::timed_out, std::move(text));
}

caf::error no_answer_at_all(std::chrono::milliseconds longest) {
  return make_error(errc::timed_out,
                    fmt::format("no answer for {:g} s, although payloads moved on the connection",
                                static_cast<double>(longest.count()) / 1000));
}

} // namespace troupe::detail
