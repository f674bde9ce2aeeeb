// The deadlines of requests over a link on which payloads move.

#include "actors/ask.hpp"

#include "actors/link/link_session.hpp"
#include "messages/errors.hpp"
#include "messages/types.hpp"
#include "tests/messages/codec.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <future>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(asking)

namespace {

/// Sends a request once, and passes its error to `result`.
class asker : public caf::event_based_actor {
public:
  asker(caf::actor_config& cfg, caf::actor receiver, std::promise<std::string> result)
    : caf::event_based_actor(cfg), receiver_(std::move(receiver)), result_(std::move(result)) {}

  caf::behavior make_behavior() override {
    troupe::patience how;
    how.timeout = 50ms;
    how.attempts = 1;
    ask(
      this, receiver_, how, [this](const proto::Shutdown&) { end("an answer"); },
      [this](const caf::error& error) { end(explain(error)); }, proto::Shutdown{});
    return {[](caf::unit_t) {}};
  }

private:
  void end(const std::string& text) {
    result_.set_value(text);
    quit();
  }

  caf::actor receiver_;
  std::promise<std::string> result_;
};

/// The error of a request that its receiver never answers.
/// @param payloads true if payloads of others move on the link all the time
std::string error_of_request(bool payloads) {
  codec code;
  caf::scoped_actor link{code.system()};
  const auto session =
    std::make_shared<link_session>(code.system(), std::make_shared<directory>(),
                                   caf::actor_cast<caf::strong_actor_ptr>(link.ptr()));
  const auto port = make_port(code.system(), session, endpoint{{job_kind::ps, 0}, proto::NODE});
  std::promise<std::string> result;
  auto error = result.get_future();
  // A time in the future: payloads count as moving during the whole request.
  if (payloads)
    session->meter()->count(1, std::chrono::steady_clock::now() + 1h);
  code.system().spawn<asker>(caf::actor_cast<caf::actor>(port), std::move(result));
  const auto text = error.get();
  session->close(make_error(errc::link_lost), nullptr);
  return text;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_request_without_an_answer_fails) {
  BOOST_TEST(contains(error_of_request(false), "no answer and no data for 0.05 s"));
}

// The time of a request does not run while payloads move, but the request still has an end.
BOOST_AUTO_TEST_CASE(a_request_fails_although_payloads_move) {
  const auto error = error_of_request(true);
  BOOST_TEST(contains(error, "no answer for 0.5 s, although payloads moved"), error);
}

BOOST_AUTO_TEST_SUITE_END()
