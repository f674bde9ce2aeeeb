#include "kernels/plan/plan.hpp"

#include "kernels/plan/planner.hpp"

#include <sstream>

namespace troupe {

plan::plan(const graph& source, const plan_options& options) {
  planner(*this, source, options).run();
}

namespace {

std::string describe(const operand& x) {
  if (!x.exists())
    return "nothing";
  auto result = x.name + " " + troupe::to_string(x.shape);
  switch (x.where) {
  case operand::place::arena:
    return result + " @" + std::to_string(x.index);
  case operand::place::gradient:
    return result + " @gradient " + std::to_string(x.index);
  default:
    return result;
  }
}

std::string describe(const instruction& x) {
  std::ostringstream out;
  out << to_string(x.op);
  for (std::size_t i = 0; i < x.program.size(); ++i)
    out << (i == 0 ? "[" : " ") << to_string(x.program[i].op)
        << (i + 1 == x.program.size() ? "]" : "");
  out << '(';
  for (std::size_t i = 0; i < x.inputs.size(); ++i) {
    const bool transposed = (i == 0 && x.transpose_a) || (i == 1 && x.transpose_b);
    out << (i > 0 ? ", " : "") << describe(x.inputs[i]) << (transposed ? "^T" : "");
  }
  out << ')';
  if (x.bias.exists())
    out << " + " << describe(x.bias);
  if (x.after)
    out << " | " << to_string(*x.after);
  if (x.epilogue_operand.exists())
    out << '(' << describe(x.epilogue_operand) << ')';
  out << " -> " << describe(x.output);
  if (x.gradient.exists())
    out << ", gradient " << describe(x.gradient);
  if (x.correct.exists())
    out << ", correct " << describe(x.correct);
  for (const auto& more : x.more)
    if (more.exists())
      out << ", " << describe(more);
  return out.str();
}

std::size_t bytes_touched(const instruction& x, std::size_t rows) {
  std::size_t total = 0;
  auto count = [&](const operand& o) {
    if (o.exists())
      total += o.shape.elements(rows) * size_of(o.type);
  };
  for (const auto& input : x.inputs)
    count(input);
  for (const auto* o : {&x.bias, &x.epilogue_operand})
    count(*o);
  x.each_result(count);
  return total;
}

} // namespace

std::string plan::to_string() const {
  std::ostringstream out;
  out << "plan for up to " << max_rows_ << " rows, arena " << arena_elements_ * sizeof(float)
      << " bytes\n";
  std::size_t next = 0;
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const auto& x = instructions_[i];
    out << i << "  " << describe(x) << "  [" << bytes_touched(x, max_rows_) << " bytes]\n";
    for (; next < buckets_.size() && buckets_[next].ready_after == i; ++next)
      out << "   bucket " << next << " ready: elements " << buckets_[next].elements.begin << " to "
          << buckets_[next].elements.end << '\n';
  }
  return out.str();
}

} // namespace troupe
