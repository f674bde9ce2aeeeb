#include "kernels/formats/csv.hpp"

#include "kernels/error.hpp"
#include "kernels/formats/nearest_name.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <utf8.h>

namespace troupe {

namespace {

constexpr std::size_t max_columns =
  1'000'000; // limits the memory: in the file, a column may take a single byte

std::string place(std::string_view name, std::uint64_t line) {
  return std::string{name} + ":" + std::to_string(line) + ": ";
}

/// Reads the fields of a text, one after the other. A field in quotes is copied. Other fields are
/// views of the text.
class field_reader {
public:
  field_reader(std::span<const std::byte> bytes, std::string_view name)
    : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_(name) {
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff"))
      throw input_error(std::string{name} + ": text in UTF-16; save the file as UTF-8");
    if (text_.starts_with("\xef\xbb\xbf"))
      text_.remove_prefix(3);
  }

  /// Line of the next field, from 1.
  std::uint64_t line() const noexcept { return line_; }

  bool at_end() const noexcept { return position_ == text_.size(); }

  /// Returns true if only blank lines are left, and skips them.
  bool only_blank_lines_left() {
    const std::size_t next = text_.find_first_not_of("\r\n", position_);
    if (next != std::string_view::npos)
      return false;
    position_ = text_.size();
    return true;
  }

  /// The next field, valid until the next call. Afterwards, `line_ended` is true if this field was
  /// the last one of its line.
  std::string_view next() {
    const std::string_view field = !at_end() && text_[position_] == '"' ? quoted() : plain();
    end_field();
    return field;
  }

  bool line_ended() const noexcept { return line_ended_; }

private:
  std::string_view plain() {
    const std::size_t start = position_;
    position_ = std::min(text_.find_first_of(",\n", position_), text_.size());
    std::size_t end = position_;
    if (end > start && text_[end - 1] == '\r' && (at_end() || text_[position_] == '\n'))
      --end;
    return text_.substr(start, end - start);
  }

  std::string_view quoted() {
    const std::uint64_t opened = line_;
    unquoted_.clear();
    ++position_;
    while (true) {
      const std::size_t quote = text_.find('"', position_);
      if (quote == std::string_view::npos)
        throw input_error(place(name_, opened) + "a quote is opened here and never closed");
      const auto part = text_.substr(position_, quote - position_);
      line_ += static_cast<std::uint64_t>(std::ranges::count(part, '\n'));
      unquoted_ += part;
      position_ = quote + 1;
      if (at_end() || text_[position_] != '"')
        break;
      unquoted_ += '"';
      ++position_;
    }
    if (!at_end() && text_[position_] == '\r')
      ++position_;
    if (!at_end() && text_[position_] != ',' && text_[position_] != '\n')
      throw input_error(place(name_, line_)
                        + "text after a closing quote; expected a comma or the "
                          "end of the line");
    return unquoted_;
  }

  void end_field() {
    line_ended_ = at_end() || text_[position_] == '\n';
    if (at_end())
      return;
    line_ += text_[position_] == '\n' ? 1 : 0;
    ++position_;
  }

  std::string_view text_;
  std::string_view name_;
  std::string unquoted_;
  std::size_t position_ = 0;
  std::uint64_t line_ = 1;
  bool line_ended_ = false;
};

std::vector<std::string> read_header(field_reader& reader, std::string_view name) {
  std::vector<std::string> header;
  if (reader.only_blank_lines_left())
    throw input_error(std::string{name} + ": empty; expected a header line with column names");
  do {
    if (header.size() == max_columns)
      throw input_error(std::string{name} + ": more than " + std::to_string(max_columns)
                        + " columns; is this a CSV file?");
    header.emplace_back(reader.next());
  } while (!reader.line_ended());
  return header;
}

/// If the header has one column, and its name contains another separator than the comma, returns
/// advice for the error. Otherwise returns an empty text.
std::string separator_advice(std::span<const std::string> header) {
  const std::size_t found =
    header.size() == 1 ? header.front().find_first_of(";\t|") : std::string::npos;
  if (found == std::string::npos)
    return "";
  const char separator = header.front()[found];
  const std::string name = separator == ';' ? "semicolons" : separator == '\t' ? "tabs" : "\"|\"";
  return ". Is the line divided by " + name
    + "? Save the file with commas, and with decimal points in numbers";
}

std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && blank(text.back()))
    text.remove_suffix(1);
  return text;
}

/// The number in a field. The result is empty if the text is not a finite number.
std::optional<double> number_of(std::string_view field) {
  auto text = without_blanks(field);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-')
    text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// Advice for the error about a column that is missing in the header, if all names in the header
/// are numbers. Otherwise an empty text.
std::string header_advice(std::span<const std::string> header) {
  const bool numbers =
    std::ranges::all_of(header, [](const std::string& x) { return number_of(x).has_value(); });
  return numbers ? ". The first line has only numbers: is the header line with the names of the "
                   "columns missing?"
                 : "";
}

/// For each column of the file: its position in `columns`, the selected columns. Empty for a column
/// that is not selected.
std::vector<std::optional<std::size_t>> find_columns(std::span<const std::string> header,
                                                     std::span<const std::string> columns,
                                                     std::string_view name) {
  std::vector<std::optional<std::size_t>> chosen(header.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto found = std::ranges::find(header, columns[i]);
    if (found == header.end())
      throw input_error(std::string{name} + ": no column \"" + columns[i] + "\"; "
                        + suggestion(columns[i], header) + separator_advice(header)
                        + header_advice(header));
    if (std::ranges::count(header, columns[i]) > 1)
      throw input_error(std::string{name} + ": the header names column \"" + columns[i]
                        + "\" more than once; make the names differ");
    auto& slot = chosen[static_cast<std::size_t>(found - header.begin())];
    if (slot)
      throw input_error(std::string{name} + ": column \"" + columns[i]
                        + "\" is requested twice; name each column once");
    slot = i;
  }
  return chosen;
}

double parse_number(std::string_view field, std::string_view column, std::string_view name,
                    std::uint64_t line) {
  const auto value = number_of(field);
  if (!value)
    throw input_error(
      place(name, line) + "column \"" + excerpt(column) + "\": expected a finite number, found \""
      + excerpt(field)
      + "\". If this means a missing value, add it to data.csv.missing_text; if the "
        "column has texts, name it in data.csv.categories (a feature) or data.csv.label");
  return *value;
}

std::vector<std::string> names_of(std::span<const csv_column> columns) {
  std::vector<std::string> result;
  for (const auto& x : columns)
    result.push_back(x.name);
  return result;
}

/// Reads the rows below a header.
class row_reader {
public:
  row_reader(std::span<const std::byte> bytes, std::span<const std::string> columns,
             std::string_view name)
    : reader_(bytes, name), name_(name) {
    const auto header = read_header(reader_, name);
    fields_ = header.size();
    chosen_ = find_columns(header, columns, name);
  }

  /// Reads the next rows, at most `most`. Calls `begin_row()` before the fields of each row, and
  /// `take(which, field, line)` for each field of a selected column.
  /// @return the number of rows
  template <class Begin, class Take>
  std::uint64_t read(std::uint64_t most, Begin begin_row, Take take) {
    std::uint64_t rows = 0;
    for (; rows < most && !reader_.only_blank_lines_left(); ++rows) {
      const std::uint64_t line = reader_.line();
      begin_row();
      std::size_t fields = 0;
      // In a row with too few fields, a field may be in a wrong column. So the number of fields is
      // checked first.
      std::exception_ptr problem;
      do {
        const auto field = reader_.next();
        try {
          if (fields < fields_ && chosen_[fields] && !problem)
            take(*chosen_[fields], field, line);
        } catch (const input_error&) {
          problem = std::current_exception();
        }
        ++fields;
      } while (!reader_.line_ended());
      if (fields != fields_)
        throw input_error(place(name_, line) + "expected " + std::to_string(fields_)
                          + " fields as in the header, found " + std::to_string(fields));
      if (problem)
        std::rethrow_exception(problem);
    }
    return rows;
  }

private:
  field_reader reader_;
  std::string_view name_;
  std::size_t fields_ = 0;
  std::vector<std::optional<std::size_t>> chosen_;
};

/// Reads all rows.
template <class Begin, class Take>
std::uint64_t read_rows(std::span<const std::byte> bytes, std::span<const std::string> columns,
                        std::string_view name, Begin begin_row, Take take) {
  const auto rows = row_reader{bytes, columns, name}.read(std::numeric_limits<std::uint64_t>::max(),
                                                          begin_row, take);
  if (rows == 0)
    throw input_error(std::string{name} + ": no records after the header");
  return rows;
}

/// Numbers texts in the order of their first occurrence.
class text_numbers {
public:
  double number(std::string_view text) {
    const auto [place, is_new] = numbers_.try_emplace(std::string{text}, texts_.size());
    if (is_new)
      texts_.emplace_back(text);
    return static_cast<double>(place->second);
  }

  std::vector<std::string>& texts() noexcept { return texts_; }

private:
  std::unordered_map<std::string, std::size_t> numbers_;
  std::vector<std::string> texts_;
};

bool is_missing(std::string_view field, std::span<const std::string> missing) {
  const auto text = without_blanks(field);
  return text.empty() || std::ranges::find(missing, text) != missing.end();
}

} // namespace

csv_columns parse_csv(std::span<const std::byte> bytes, std::span<const std::string> columns,
                      std::string_view name) {
  csv_columns result;
  result.names.assign(columns.begin(), columns.end());
  std::size_t row = 0;
  result.rows = read_rows(
    bytes, columns, name,
    [&] {
      row = result.values.size();
      result.values.resize(row + columns.size());
    },
    [&](std::size_t which, std::string_view field, std::uint64_t line) {
      result.values[row + which] = parse_number(field, columns[which], name, line);
    });
  return result;
}

class csv_reader::implementation {
public:
  implementation(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                 std::vector<std::string> missing, std::string name)
    : name_(std::move(name)), columns_(columns.begin(), columns.end()),
      missing_(std::move(missing)), rows_(bytes, names_of(columns), name_) {}

  csv_table next(std::uint64_t most) {
    csv_table result;
    std::vector<text_numbers> texts(columns_.size());
    std::size_t row = 0;
    result.rows = rows_.read(
      most,
      [&] {
        row = result.values.size();
        result.values.resize(row + columns_.size());
      },
      [&](std::size_t which, std::string_view field, std::uint64_t line) {
        auto& value = result.values[row + which];
        if (is_missing(field, missing_))
          value = std::numeric_limits<double>::quiet_NaN();
        else if (columns_[which].text)
          value = texts[which].number(utf8_text(field, which, line));
        else
          value = parse_number(field, columns_[which].name, name_, line);
      });
    for (auto& x : texts)
      result.texts.push_back(std::move(x.texts()));
    return result;
  }

private:
  std::string_view utf8_text(std::string_view field, std::size_t column, std::uint64_t line) const {
    if (!utf8::is_valid(field.begin(), field.end()))
      throw input_error(place(name_, line) + "column \"" + excerpt(columns_[column].name) + "\": \""
                        + excerpt(field)
                        + "\" is not UTF-8; save the file as UTF-8. From Latin-1, for example: "
                          "iconv -f latin1 -t utf-8");
    return without_blanks(field);
  }

  std::string name_;
  std::vector<csv_column> columns_;
  std::vector<std::string> missing_;
  row_reader rows_;
};

csv_reader::csv_reader(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                       std::vector<std::string> missing, std::string name)
  : implementation_(
    std::make_unique<implementation>(bytes, columns, std::move(missing), std::move(name))) {}

csv_reader::~csv_reader() = default;

csv_table csv_reader::next(std::uint64_t most) {
  return implementation_->next(most);
}

csv_table parse_csv(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                    std::span<const std::string> missing, std::string_view name) {
  auto result =
    csv_reader{bytes, columns, {missing.begin(), missing.end()}, std::string{name}}.next(
      std::numeric_limits<std::uint64_t>::max());
  if (result.rows == 0)
    throw input_error(std::string{name} + ": no records after the header");
  return result;
}

csv_gap first_gap(std::span<const std::byte> bytes, std::span<const csv_column> columns,
                  std::span<const std::string> missing, std::string_view name) {
  csv_gap result;
  read_rows(
    bytes, names_of(columns), name, [] {},
    [&](std::size_t which, std::string_view field, std::uint64_t line) {
      if (result.place.empty() && is_missing(field, missing))
        result = {place(name, line) + "column \"" + excerpt(columns[which].name) + "\"", which};
    });
  return result;
}

std::vector<std::size_t> sort_categories(std::span<const std::string> texts,
                                         std::vector<std::string>& names) {
  std::vector<double> numbers;
  for (const auto& text : texts)
    if (const auto number = number_of(text))
      numbers.push_back(*number);
  const bool numeric = numbers.size() == texts.size();
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto less = [&](std::size_t a, std::size_t b) {
    return numeric ? numbers[a] < numbers[b] : texts[a] < texts[b];
  };
  std::ranges::stable_sort(order, less);
  names.clear();
  std::vector<std::size_t> result(texts.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || less(order[i - 1], order[i]))
      names.push_back(texts[order[i]]);
    result[order[i]] = names.size() - 1;
  }
  return result;
}

category_index::category_index(std::span<const std::string> names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    texts_.emplace(names[i], i);
    if (const auto number = number_of(names[i]); number && numbers_.size() == i)
      numbers_.emplace(*number, i);
  }
  if (numbers_.size() < names.size())
    numbers_.clear();
}

std::optional<std::size_t> category_index::find(const std::string& text) const {
  if (const auto found = texts_.find(text); found != texts_.end())
    return found->second;
  const auto number = numbers_.empty() ? std::nullopt : number_of(text);
  const auto found = number ? numbers_.find(*number) : numbers_.end();
  return found == numbers_.end() ? std::nullopt : std::optional{found->second};
}

std::vector<std::string> parse_csv_header(std::span<const std::byte> bytes, std::string_view name) {
  field_reader reader{bytes, name};
  return read_header(reader, name);
}

} // namespace troupe
