#pragma once

#include "kernels/plan/plan.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace troupe {

/// Fills a plan. The planner selects the needed nodes, fuses them into steps, assigns a position to
/// every value, and determines when buckets are ready. run() calls the other member functions in
/// order; each of them is one stage. Internal to kernels/.
class planner {
public:
  planner(plan& result, const graph& source, const plan_options& options);
  void run();

private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// An instruction before its operands have positions. Operands and results are node ids.
  struct step {
    operation op = operation::add;
    std::vector<std::uint32_t> inputs;
    std::uint32_t output = none;
    std::uint32_t bias = none;
    std::optional<operation> after;
    std::uint32_t epilogue_operand = none;
    std::uint32_t gradient = none;
    std::uint32_t correct = none;
    std::vector<std::uint32_t> more;
    /// For elementwise: see instruction::program.
    std::vector<element_step> program;
    std::size_t temporaries = 0;
    /// The node whose attributes (transposes, factor, window and others) the instruction copies.
    std::uint32_t source = none;

    /// each_read calls f(id) for each value that the step reads; each_written does the same for
    /// each value that the step writes.
    template <class F>
    void each_read(F f) const {
      for (auto id : inputs)
        f(id);
      for (auto id : {bias, epilogue_operand})
        if (id != none)
          f(id);
    }
    template <class F>
    void each_written(F f) const {
      for (auto id : {output, gradient, correct})
        if (id != none)
          f(id);
      for (auto id : more)
        if (id != none)
          f(id);
    }
  };

  /// Builds one step from a chain of element-wise nodes. In the finished step, the numbers of the
  /// temporaries follow those of the inputs. But the number of inputs is known only at the end.
  /// While a chain is built, the numbers of temporaries therefore begin with first_temporary.
  struct chain_builder {
    const planner& owner;
    step result;
    /// Temporaries that have been read already, and can be used again.
    std::vector<std::uint32_t> free;

    void add_inputs(std::uint32_t id);
    std::uint32_t add(std::uint32_t id);
    std::uint32_t operand_of(std::uint32_t input);
  };
  static constexpr std::uint32_t first_temporary = 1U << 16;
  /// The largest number of nodes in a chain. A chain is computed in the step of the node that reads
  /// the chain's result. This node has at most 3 operands, and each operand may be the result of a
  /// chain. So a step has at most 3 * 16 + 1 nodes, and the number of values that it reads is
  /// limited, too. A GPU kernel has space for this number of nodes (most_chain_steps in
  /// kernels/cuda/elementwise.hpp).
  static constexpr std::size_t longest_chain = 16;

  const node& at(std::uint32_t id) const { return plan_.graph_.at(id); }
  fusion_traits fuses(operation op) const {
    return options_.fusion != nullptr ? (*options_.fusion)[static_cast<std::size_t>(op)]
                                      : fusion_traits{};
  }
  /// The node whose memory contains the elements of `id`. Usually, this is `id` itself. If `id`
  /// only shows the elements of another node, as a reshape does, it is that other node.
  std::uint32_t root(std::uint32_t id) const;
  operand place(std::uint32_t id) const;
  std::uint32_t check(const char* what, expression x) const;

  void choose_targets();
  void lower();
  std::uint32_t in_full(std::uint32_t id);
  void differentiate();
  void mark_needed();
  void copy_shared_gradients();
  void emit_steps();
  void emit(std::uint32_t id);
  void emit_softmax(std::uint32_t id);
  void emit_attention(std::uint32_t id);
  void fuse_product(std::uint32_t id);
  void choose_chains();
  bool is_elementwise(std::uint32_t id) const;
  step chain_ending_at(std::uint32_t id) const;
  std::uint32_t sole_user(std::uint32_t id) const;
  void place_leaves();
  void place_values();
  void place_output(const step& s, std::size_t position, std::uint32_t id);
  bool place_over_input(const step& s, std::size_t position, std::uint32_t id);
  std::size_t allocate(std::size_t elements);
  void release(std::size_t begin, std::size_t elements);
  std::size_t arena_size(std::uint32_t id) const;
  void write_instructions();
  bool reads_rows_alone(std::size_t entry) const;
  void find_row_sparse();
  void make_buckets();

  plan& plan_;
  const graph& source_;
  const plan_options& options_;

  std::uint32_t loss_ = none;
  std::uint32_t correct_ = none;
  std::vector<std::uint32_t> fetches_;
  /// Pairs (node, layout entry): the node computes the gradient of the entry.
  std::vector<std::pair<std::uint32_t, std::size_t>> parameter_gradients_;

  // Indexed by node id.
  std::vector<char> needed_;
  std::vector<char> kept_;    // true: the caller reads the value after the run
  std::vector<char> emitted_; // true: the value is in a step already, possibly in a step of fused_
  std::vector<char> chained_; // true: the step of its only reader computes the value
  std::vector<std::vector<std::uint32_t>> users_;
  std::vector<operand> places_;
  std::vector<std::size_t> last_read_;
  std::vector<char> owns_block_;

  std::vector<step> steps_;
  /// Fused steps, by the id of their last node. The planner emits a fused step in the place of its
  /// last node, because all inputs have been computed there.
  std::map<std::uint32_t, step> fused_;
  /// Free parts of the arena, in ascending order: (first element, number of elements).
  std::vector<std::pair<std::size_t, std::size_t>> free_;
};

} // namespace troupe
