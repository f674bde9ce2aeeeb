#pragma once

#include "actors/store/store_rule.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// The values of one server: a part of all elements, with the state of its update rule. This is a
/// plain object, not an actor.
///
/// A pull of one range with more than half of the values returns the server's own memory without a
/// copy. While a reader holds this memory, an update writes to new memory, and copies the values
/// that it does not change. So no reader sees a part of an update, and the copy has less than twice
/// the length of the pulled range. All other pulls make a copy, and an update can then change the
/// values in place.
class store_values {
public:
  /// Starts with values of 0. `where`: the server's part of all elements.
  store_values(range where, const store_rule& rule);

  const range& where() const noexcept { return where_; }

  /// Changes the values by the rule. With adam and adamw, every push counts as a step of all
  /// elements.
  /// @param ranges ascending, without overlap, within where()
  /// @param values the pushed values of all ranges, one after another
  void push(std::span<const range> ranges, std::span<const float> values);

  /// Sets the values of the ranges. The state of the update rule does not change.
  void assign(std::span<const range> ranges, std::span<const float> values);

  /// The values of the ranges, one after another.
  payload pull(std::span<const range> ranges) const;

  /// Number of pushes and assignments so far.
  std::uint64_t version() const noexcept { return version_; }

private:
  template <class Change>
  void change(std::span<const range> ranges, std::span<const float> values, Change change);

  range where_;
  store_rule rule_;
  payload values_;
  std::vector<float> state_;
  std::uint64_t version_ = 0;
  std::uint64_t pushes_ = 0;
};

} // namespace troupe
