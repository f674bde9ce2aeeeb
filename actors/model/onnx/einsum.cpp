// ONNX's Einsum: sums of products of tensors, in Einstein's notation.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

namespace troupe {

namespace {

/// A tensor whose dimensions have letters as names.
struct named_tensor {
  std::string letters;
  onnx_value v;

  std::int64_t extent(char letter) const { return v.dims()[letters.find(letter)]; }
  bool has(char letter) const { return letters.find(letter) != std::string::npos; }
  /// True if this letter is the batch.
  bool is_batch(char letter) const { return extent(letter) == onnx_constant::batch; }
};

std::int64_t product(const named_tensor& x, const std::string& letters) {
  std::int64_t result = 1;
  for (const char letter : letters)
    result *= x.extent(letter);
  return result;
}

/// x with its dimensions in this order.
named_tensor ordered(const onnx_node& node, const named_tensor& x, const std::string& letters) {
  std::vector<std::size_t> axes;
  for (const char letter : letters)
    axes.push_back(x.letters.find(letter));
  return {letters, transposed(x.v, axes, node.target())};
}

/// Sums over the letters that are not in `kept`.
named_tensor summed(const onnx_node& node, named_tensor x, const std::string& kept) {
  std::vector<std::size_t> axes;
  std::string rest;
  for (std::size_t i = 0; i < x.letters.size(); ++i) {
    const bool keep = kept.find(x.letters[i]) != std::string::npos;
    if (!keep && x.is_batch(x.letters[i]))
      node.refuse("the sum over \"" + std::string{x.letters[i]} + "\" runs over the batch");
    if (keep)
      rest += x.letters[i];
    else
      axes.push_back(i);
  }
  if (axes.empty())
    return x;
  const auto rows = rows_over(node, x.v, axes);
  return {rest, {sum_last(rows.x), rows.batch_at}};
}

/// The letters of two operands, by their role in the product of matrices (alike, left, summed) and
/// (alike, summed, right).
struct letter_roles {
  std::string alike;
  std::string left;
  std::string right;
  std::string summed;
};

letter_roles roles_of(const named_tensor& a, const named_tensor& b, const std::string& kept) {
  letter_roles result;
  for (const char letter : a.letters)
    (!b.has(letter)                             ? result.left
       : kept.find(letter) != std::string::npos ? result.alike
                                                : result.summed) += letter;
  for (const char letter : b.letters)
    if (!a.has(letter))
      result.right += letter;
  return result;
}

/// A product for each combination of the letters `alike`, if only the left operand has the batch.
/// In the graph, the batch cannot be a dimension of the matrices of one product.
onnx_value one_by_one(const onnx_node& node, const onnx_value& a, const onnx_value& b,
                      std::int64_t count) {
  std::vector<onnx_value> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto part_of = [&](const onnx_value& v) {
      const auto part = sliced(node, v, 0, i, i + 1);
      auto dims = part.dims();
      dims.erase(dims.begin());
      return with_dims(node, part, dims);
    };
    const auto y = matrix_product(node, part_of(a), part_of(b));
    auto dims = y.dims();
    dims.insert(dims.begin(), 1);
    parts.push_back(with_dims(node, y, dims));
  }
  return parts.size() == 1 ? parts[0] : concatenated(node, parts, 0);
}

/// The product of two tensors, summed over the letters that are not in `kept`.
named_tensor multiplied(const onnx_node& node, named_tensor a, named_tensor b,
                        const std::string& kept) {
  constexpr std::int64_t most_products = 256;
  a = summed(node, a, kept + b.letters);
  b = summed(node, b, kept + a.letters);
  for (const char letter : a.letters)
    if (b.has(letter) && a.extent(letter) != b.extent(letter))
      node.refuse("\"" + std::string{letter} + "\" has " + std::to_string(a.extent(letter))
                  + " elements in one operand, and " + std::to_string(b.extent(letter))
                  + " in another");
  // The operand whose samples differ comes first.
  if (!a.v.has_batch())
    std::swap(a, b);
  const auto by = roles_of(a, b, kept);
  if (std::ranges::any_of(by.summed, [&](char letter) { return a.is_batch(letter); }))
    node.refuse("a sum runs over the batch");
  const bool apart = a.v.has_batch()
    && std::ranges::none_of(by.alike, [&](char letter) { return a.is_batch(letter); });
  const bool either = b.v.has_batch()
    && std::ranges::any_of(by.right, [&](char letter) { return b.is_batch(letter); });
  if (either)
    node.refuse("the operands have the batch under different letters");
  auto left = ordered(node, a, by.alike + by.left + by.summed).v;
  auto right = ordered(node, b, by.alike + by.summed + by.right).v;
  const auto k = product(a, by.summed);
  const auto n = product(b, by.right);
  std::vector<std::int64_t> dims;
  for (const char letter : by.alike)
    dims.push_back(a.extent(letter));
  auto rows = dims;
  auto columns = dims;
  onnx_value y;
  if (apart && !by.alike.empty()) {
    const auto count = product(a, by.alike);
    if (count > most_products)
      node.refuse("the product is one of " + std::to_string(count)
                  + " separate matrices, which only one operand has for each sample; at most "
                  + std::to_string(most_products) + " are accepted");
    rows = columns = {count};
  }
  // Without `alike`, the rows keep their dimensions, because the batch can be one of them.
  const bool merges = !apart && !by.alike.empty();
  if (merges)
    rows.push_back(product(a, by.left));
  else
    for (const char letter : by.left)
      rows.push_back(a.extent(letter));
  rows.push_back(k);
  columns.insert(columns.end(), {k, n});
  left = with_dims(node, left, rows);
  right = with_dims(node, right, columns);
  if (by.left.empty() && !merges) { // a vector
    rows.insert(rows.end() - 1, 1);
    left = with_dims(node, left, rows);
  }
  y = apart && !by.alike.empty() ? one_by_one(node, left, right, rows[0])
                                 : matrix_product(node, left, right);
  for (const char letter : by.left)
    dims.push_back(a.extent(letter));
  for (const char letter : by.right)
    dims.push_back(b.extent(letter));
  return {by.alike + by.left + by.right, with_dims(node, y, dims)};
}

/// The letters of the operands, and those of the result, from "bi,ij->bj". Without "->", the result
/// has the letters that occur once, in alphabetical order.
std::vector<std::string> letters_of(onnx_node& node) {
  auto equation = node.text("equation", "");
  std::erase(equation, ' ');
  const auto refuse = [&](const std::string& what) {
    node.refuse("the equation \"" + equation + "\" " + what);
  };
  const auto arrow = equation.find("->");
  std::vector<std::string> result(1);
  for (const char c : equation.substr(0, arrow))
    if (c == ',')
      result.emplace_back();
    else if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      result.back() += c;
    else
      refuse("has \"" + std::string{c} + "\"; expected letters");
  std::string all;
  for (const auto& x : result)
    all += x;
  std::string output;
  if (arrow != std::string::npos)
    output = equation.substr(arrow + 2);
  else
    std::ranges::copy_if(all, std::back_inserter(output),
                         [&](char c) { return std::ranges::count(all, c) == 1; });
  if (arrow == std::string::npos)
    std::ranges::sort(output);
  result.push_back(output);
  for (const auto& x : result) {
    auto sorted = x;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end())
      refuse("has a letter twice in \"" + x + "\"");
  }
  for (const char c : output)
    if (all.find(c) == std::string::npos)
      refuse("has \"" + std::string{c} + "\" only in the result");
  return result;
}

void einsum(onnx_node& node) {
  auto letters = letters_of(node);
  const auto output = letters.back();
  letters.pop_back();
  if (letters.size() != node.inputs())
    node.refuse("the equation has " + std::to_string(letters.size()) + " operands, and the node "
                + std::to_string(node.inputs()));
  named_tensor result;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    named_tensor next{letters[i], as_tensor(node.input(i), node.target())};
    if (next.v.rank() != letters[i].size())
      node.refuse("operand " + std::to_string(i) + " of shape " + shape_text(next.v.dims())
                  + " has the letters \"" + letters[i] + "\"");
    auto kept = output;
    for (auto later = i + 1; later < letters.size(); ++later)
      kept += letters[later];
    result = i == 0 ? summed(node, next, kept) : multiplied(node, result, next, kept);
  }
  node.set(ordered(node, result, output).v);
}

} // namespace

void add_einsum_operators(onnx_operators& all) {
  all["Einsum"] = {einsum, 12,
                   "no \"...\", and no letter twice in an operand; no sum over the batch"};
}

} // namespace troupe
