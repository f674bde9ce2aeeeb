#include "messages/errors.hpp"

#include "codec.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(codes_have_names) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(errc::bad_input); ++i)
    names.insert(to_string(static_cast<errc>(i)));
  BOOST_TEST(names.size() == static_cast<std::size_t>(errc::bad_input) + 1);
  BOOST_TEST(names.count("unknown error") == 0u);
  BOOST_TEST(to_string(static_cast<errc>(200)) == std::string{"unknown error"});
}

BOOST_AUTO_TEST_CASE(texts_for_a_person) {
  BOOST_TEST(explain({}) == "it has ended");
  BOOST_TEST(explain(make_error(errc::timed_out)) == "timed out");
  BOOST_TEST(explain(make_error(errc::old_view, "view 2")) == "old view: view 2");
  // The text does not say that something failed, because its reader already knows this.
  BOOST_TEST(explain(make_error(errc::failed, "no data")) == "no data");
  BOOST_TEST(explain(make_error(errc::failed)) == "failed");
  BOOST_TEST(explain(caf::sec::request_timeout) == "no answer before the deadline");
  // Errors of CAF become words, not names of constants.
  BOOST_TEST(explain(caf::sec::connection_timeout)
             == "nothing was received over the connection in time");
  BOOST_TEST(explain(caf::sec::disconnect_during_handshake)
             == "the peer closed the connection at once (is it a troupe node?)");
  BOOST_TEST(explain(caf::sec::socket_disconnected) == "socket disconnected");
  BOOST_TEST(explain(caf::make_error(caf::sec::runtime_error, std::string{"no memory"}))
             == "runtime error: no memory");
  BOOST_TEST(explain(caf::exit_reason::user_shutdown) == "user shutdown");
  BOOST_TEST((code_of(make_error(errc::fenced, "x")) == errc::fenced));
  BOOST_TEST((code_of(caf::sec::request_timeout) == errc::none));
  BOOST_TEST((code_of({}) == errc::none));
}

BOOST_AUTO_TEST_CASE(errors_keep_code_and_text_on_the_wire) {
  codec c;
  for (int i = 1; i <= static_cast<int>(errc::bad_input); ++i) {
    const auto x = make_error(static_cast<errc>(i), "worker/3: too old");
    caf::error back;
    BOOST_REQUIRE(!c.decode(c.encode(x), back));
    BOOST_TEST((code_of(back) == static_cast<errc>(i)));
    BOOST_TEST(explain(back) == explain(x));
    BOOST_TEST(c.system().render(back) == explain(x));
  }
}

BOOST_AUTO_TEST_SUITE_END()
