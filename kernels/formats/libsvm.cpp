#include "kernels/formats/libsvm.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace troupe {

namespace {

constexpr std::uint32_t max_index = 1U << 31;

class line_reader {
public:
  line_reader(libsvm_rows& rows, std::string_view name) : rows_(rows), name_(name) {}

  void read(std::string_view text, std::uint64_t line) {
    line_ = line;
    rest_ = text.substr(0, text.find('#'));
    const auto label = next_word();
    if (label.empty())
      return;
    rows_.labels.push_back(number(label, std::numeric_limits<double>::max(), "label"));
    std::uint32_t last = 0;
    for (auto word = next_word(); !word.empty(); word = next_word())
      last = read_entry(word, last);
    rows_.row_starts.push_back(rows_.columns.size());
    rows_.width = std::max(rows_.width, last);
  }

private:
  [[noreturn]] void fail(const std::string& what) const {
    throw input_error(std::string{name_} + ":" + std::to_string(line_) + ": " + what);
  }

  std::string_view next_word() {
    constexpr std::string_view blanks = " \t\r";
    rest_.remove_prefix(std::min(rest_.find_first_not_of(blanks), rest_.size()));
    const auto word = rest_.substr(0, rest_.find_first_of(blanks));
    rest_.remove_prefix(word.size());
    return word;
  }

  double number(std::string_view text, double largest, const char* what) const {
    const auto digits = text.substr(text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()
        || !(std::abs(value) <= largest))
      fail(std::string{what} + " \"" + excerpt(text) + "\": expected a finite number");
    return value;
  }

  std::uint32_t read_entry(std::string_view word, std::uint32_t last) {
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos)
      fail("\"" + excerpt(word) + "\": expected index:value");
    const auto text = word.substr(0, colon);
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc{} || end != text.data() + text.size() || index == 0 || index > max_index)
      fail("index \"" + excerpt(text) + "\": expected a whole number from 1 to "
           + std::to_string(max_index));
    if (index <= last)
      fail("index " + std::to_string(index) + " after index " + std::to_string(last)
           + ": expected ascending indexes, each once");
    const double value = number(word.substr(colon + 1), std::numeric_limits<float>::max(), "value");
    rows_.columns.push_back(index - 1);
    rows_.values.push_back(static_cast<float>(value));
    return index;
  }

  libsvm_rows& rows_;
  std::string_view name_;
  std::string_view rest_;
  std::uint64_t line_ = 0;
};

} // namespace

libsvm_rows parse_libsvm(std::span<const std::byte> bytes, std::string_view name) {
  std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  libsvm_rows result;
  line_reader reader{result, name};
  for (std::uint64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.read(text.substr(0, end), line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (result.rows() == 0)
    throw input_error(std::string{name} + ": no rows; expected lines such as \"1 3:0.5 7:1\"");
  return result;
}

} // namespace troupe
