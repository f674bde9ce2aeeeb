// Fuzz target: UTF-8 texts, and the numbers of their characters.

#include "kernels/formats/characters.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(text, input) {
  const auto text = decode_utf8(input, "x.txt");
  fuzz::require(encode_utf8(text) == fuzz::as_text(input), "a text is written as it was read");
  const vocabulary known{text};
  const auto tokens = known.encode(text, "x.txt");
  fuzz::require(known.decode(tokens) == text, "characters are found by their numbers");
}
