#include "kernels/graph/layout.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::string_view to_string(parameter_kind kind) noexcept {
  switch (kind) {
  case parameter_kind::trainable:
    return "trainable";
  case parameter_kind::state:
    return "state";
  case parameter_kind::frozen:
    return "frozen";
  }
  return "unknown";
}

const layout_entry& layout::add(std::string name, shape dims, initializer initial,
                                parameter_kind kind, double decay) {
  if (name.empty())
    throw input_error("a parameter of shape " + to_string(dims) + " has no name");
  if (find(name) != nullptr)
    throw input_error("two parameters are named \"" + name + "\"; give the layers different names");
  if (dims.has_batch())
    throw input_error("parameter \"" + name + "\" of shape " + to_string(dims)
                      + ": only per-sample tensors have a batch dimension");
  const auto size = dims.elements();
  entries_.push_back(
    {std::move(name), std::move(dims), dtype::float32, kind, initial, size_, size, decay});
  size_ += size;
  return entries_.back();
}

const layout_entry* layout::find(std::string_view name) const noexcept {
  auto i = std::ranges::find(entries_, name, &layout_entry::name);
  return i == entries_.end() ? nullptr : &*i;
}

std::size_t layout::entry_at(std::size_t offset) const noexcept {
  // The entry that contains `offset` is the last one that begins at or before `offset`. Empty
  // entries that begin at the same element come before it.
  auto i = std::ranges::upper_bound(entries_, offset, {}, &layout_entry::offset);
  return static_cast<std::size_t>(i - entries_.begin()) - 1;
}

namespace {

std::string describe(const layout_entry& x) {
  return x.name + " " + to_string(x.shape) + " " + std::string(to_string(x.type)) + " "
    + std::string(to_string(x.kind));
}

} // namespace

std::string to_string(const layout& x) {
  std::string result;
  for (const auto& entry : x.entries())
    result += describe(entry) + " at " + std::to_string(entry.offset) + ", starts as "
      + to_string(entry.initial) + "\n";
  return result;
}

std::optional<std::string> first_difference(const layout& here, const layout& there) {
  const auto n = std::max(here.entries().size(), there.entries().size());
  auto at = [](const layout& x, std::size_t i) {
    return i < x.entries().size() ? describe(x.entries()[i]) : std::string("nothing");
  };
  for (std::size_t i = 0; i < n; ++i) {
    const auto a = at(here, i);
    const auto b = at(there, i);
    if (a != b)
      return "tensor " + std::to_string(i) + ": " + a + " here, " + b + " there";
  }
  return std::nullopt;
}

} // namespace troupe
