#include "tests/fuzz/target.hpp"

#include "kernels/error.hpp"

namespace troupe::fuzz {

std::vector<target>& targets() {
  static std::vector<target> all;
  return all;
}

registration::registration(std::string name, target_function run) {
  targets().push_back({std::move(name), run});
}

void run(const target& what, std::span<const std::byte> input) {
  const std::vector<std::byte> copy{input.begin(), input.end()};
  try {
    what.run(copy);
  } catch (const input_error& error) {
    require(*error.what() != '\0', "an error says what is wrong");
  }
}

} // namespace troupe::fuzz
