// Runs the stored inputs of all fuzz targets, in builds without a fuzzer. Some of these inputs once
// caused failures.

#include "kernels/formats/file.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/folders.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace {

std::filesystem::path corpus() {
  return troupe::test::source_folder() / "tests" / "fuzz" / "corpus";
}

} // namespace

BOOST_AUTO_TEST_SUITE(replay)

BOOST_AUTO_TEST_CASE(each_target_survives_its_inputs) {
  BOOST_TEST_REQUIRE(troupe::fuzz::targets().size() >= 9u);
  for (auto& target : troupe::fuzz::targets()) {
    std::size_t inputs = 0;
    for (auto& file : std::filesystem::directory_iterator{corpus() / target.name}) {
      BOOST_TEST_CONTEXT(file.path()) {
        troupe::fuzz::run(target, troupe::read_file(file.path()));
        ++inputs;
      }
    }
    BOOST_TEST(inputs > 0u, target.name);
  }
}

// Deeply nested inputs. A fuzzer makes no inputs of this length.
BOOST_AUTO_TEST_CASE(nesting_does_not_exhaust_the_stack) {
  constexpr std::size_t depth = 500'000;
  const std::string lists = std::string(depth, '[') + std::string(depth, ']');
  std::string objects;
  for (std::size_t i = 0; i < depth; ++i)
    objects += "{\"cluster\":";
  const std::vector<std::string> inputs{
    lists,
    objects + "1" + std::string(depth, '}'),
    R"({"cluster": {"worker": [)" + lists + "]}}",
    std::string(depth, '{'),
    "model=" + std::string(depth, '{') + std::string(depth, '}'),
  };
  for (auto& target : troupe::fuzz::targets())
    for (auto& input : inputs)
      BOOST_TEST_CONTEXT(target.name << ": " << input.substr(0, 40))
  troupe::fuzz::run(target, std::as_bytes(std::span{input}));
}

BOOST_AUTO_TEST_CASE(no_folder_is_without_a_target) {
  for (auto& folder : std::filesystem::directory_iterator{corpus()})
    BOOST_TEST(std::ranges::count(troupe::fuzz::targets(), folder.path().filename().string(),
                                  &troupe::fuzz::target::name)
                 == 1,
               folder.path());
}

BOOST_AUTO_TEST_SUITE_END()
