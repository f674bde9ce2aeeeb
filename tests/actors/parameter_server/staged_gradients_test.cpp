#include "actors/parameter_server/staged_gradients.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(staged_gradients)

namespace {

proto::GradientId gradient(std::uint64_t sequence, std::uint32_t worker = 0,
                           std::uint64_t incarnation = 5) {
  proto::GradientId result;
  result.set_worker(worker);
  result.set_incarnation(incarnation);
  result.set_sequence(sequence);
  return result;
}

payload of(float value) {
  auto result = payload::floats(1);
  result.as_mutable_floats()[0] = value;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(taken_once) {
  troupe::staged_gradients staged;
  BOOST_TEST(!staged.has(gradient(1)));
  staged.put(gradient(1), of(7));
  BOOST_TEST(staged.has(gradient(1)));
  BOOST_TEST(!staged.has(gradient(1, 1)), "another worker");
  BOOST_TEST(!staged.has(gradient(1, 0, 6)), "another life of this worker");
  BOOST_TEST(staged.take(gradient(1)).values.as_floats()[0] == 7.0F);
  BOOST_TEST(!staged.has(gradient(1)));
  BOOST_TEST(staged.take(gradient(1)).values.empty());
}

BOOST_AUTO_TEST_CASE(the_newest_of_each_worker) {
  troupe::staged_gradients staged;
  staged.put(gradient(1), of(1));
  staged.put(gradient(2), of(2));
  BOOST_TEST(!staged.has(gradient(1)));
  staged.put(gradient(1), of(1)); // this gradient is late
  BOOST_TEST(staged.take(gradient(2)).values.as_floats()[0] == 2.0F);
  staged.put(gradient(3), of(3));
  staged.put(gradient(3, 1), of(4));
  staged.drop(0, 5);
  BOOST_TEST(!staged.has(gradient(3)));
  BOOST_TEST(staged.has(gradient(3, 1)));
}

BOOST_AUTO_TEST_SUITE_END()
