#include "kernels/plan/widened.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Replaces the operands of 16 bits by float32 values, one instruction at a time.
class widener {
public:
  widener(const plan& what, widened_instructions& result) : what_(what), result_(result) {}

  void add(const instruction& x) {
    end_ = what_.arena_elements();
    around_ = {};
    auto replaced = x;
    for (auto& input : replaced.inputs)
      replace(input, around_.before);
    for (auto* input : {&replaced.bias, &replaced.epilogue_operand})
      replace(*input, around_.before);
    for (auto* output : {&replaced.output, &replaced.gradient, &replaced.correct})
      replace(*output, around_.after);
    for (auto& output : replaced.more)
      replace(output, around_.after);
    result_.instructions.push_back(std::move(replaced));
    result_.around.push_back(std::move(around_));
    result_.arena_elements = std::max(result_.arena_elements, end_);
  }

private:
  void replace(operand& x, std::vector<conversion>& all) {
    if (!x.exists() || !is_narrow(x.type))
      return;
    auto wide = x;
    wide.type = dtype::float32;
    const auto same = std::ranges::find_if(all, [&](const conversion& other) {
      return other.narrow.where == x.where && other.narrow.index == x.index;
    });
    if (same != all.end()) {
      wide.index = same->wide.index;
    } else {
      constexpr std::size_t alignment = 16;
      wide.index = end_;
      end_ += (x.shape.elements(what_.max_rows()) + alignment - 1) / alignment * alignment;
      all.push_back({x, wide});
    }
    x = std::move(wide);
  }

  const plan& what_;
  widened_instructions& result_;
  widened_instructions::conversions around_;
  std::size_t end_ = 0;
};

} // namespace

widened_instructions::widened_instructions(const plan& what, bool (*native)(const instruction&))
  : arena_elements(what.arena_elements()) {
  widener make{what, *this};
  for (const auto& x : what.instructions()) {
    if (native(x)) {
      instructions.push_back(x);
      around.emplace_back();
    } else {
      make.add(x);
    }
  }
}

} // namespace troupe
