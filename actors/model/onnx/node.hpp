#pragma once

#include "actors/model/onnx/value.hpp"
#include "kernels/error.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
} // namespace onnx

namespace troupe {

/// An input_error that names the node.
class onnx_node_error : public input_error {
public:
  using input_error::input_error;
};

/// A node of an ONNX model during the import: its inputs, attributes and outputs. Errors name the
/// node. Internal to actors/model/onnx.
class onnx_node {
public:
  using values = std::map<std::string, onnx_value, std::less<>>;
  using names = std::set<std::string, std::less<>>;

  /// The use of the computation. Dropout and batch normalization differ in training.
  enum class purpose : std::uint8_t { testing, training };

  /// The state that all nodes of a model share during the import.
  struct surroundings {
    /// Names of the values that nodes read, or that are outputs of the model.
    names used = {};
    /// The name of the model in errors.
    std::string model;
    /// Version of the operator set.
    std::int64_t version = 0;
    /// Largest number of elements of a computed constant.
    std::size_t limit = 0;
    graph& target;
    purpose why = purpose::testing;
    /// The size of the batch in the example with which the model was exported. Shapes in the file
    /// may contain this number. 0 if the file leaves the size of the batch open.
    std::int64_t example = 0;
    /// Largest number of elements of all computed constants together.
    std::size_t most_computed = 0;
    /// Number of elements computed so far.
    std::size_t computed = 0;
    /// Number of nodes that unrolled loops may still add.
    std::int64_t unrolled = std::int64_t{1} << 17;
    values all = {};
    /// The initializers of the bodies of loops and branches. They are read only once.
    std::map<const onnx::GraphProto*, std::vector<onnx_value>> constants = {};
    /// Number of bodies computed so far: one per step of a loop, and one per branch.
    std::size_t bodies = 0;
    /// The number of the body that is being computed, from 1 on; 0 outside of bodies.
    std::size_t body = 0;
  };

  onnx_node(const onnx::NodeProto& proto, surroundings& in) : proto_(proto), in_(in) {}

  /// Undoes a merge: if inputs merge the batch with other dimensions (onnx_value::merged), the
  /// converter gets these inputs with separate dimensions. This is done only for operators that
  /// compute each element, or each row of elements, separately. The converter's axes still count
  /// merged dimensions as one, and the outputs are merged like the inputs. Refuses products that
  /// sum over the batch, and inputs that are merged in different ways.
  void take_apart();
  bool is_apart() const noexcept { return !merged_.empty(); }

  graph& target() const noexcept { return in_.target; }
  std::int64_t version() const noexcept { return in_.version; }
  std::size_t limit() const noexcept { return in_.limit; }
  std::int64_t example() const noexcept { return in_.example; }
  bool training() const noexcept { return in_.why == purpose::training; }
  const onnx::NodeProto& proto() const noexcept { return proto_; }
  /// See surroundings.
  std::size_t body() const noexcept { return in_.body; }
  const std::string& op() const;

  /// Throws onnx_node_error: "MODEL: node "NAME" (OP): ", followed by `what`.
  [[noreturn]] void refuse(const std::string& what) const;

  // -- inputs
  std::size_t inputs() const;
  bool has_input(std::size_t i) const;
  /// Throws if the input is missing.
  const onnx_value& input(std::size_t i) const;
  /// Like input(), for converters that accept an input whose batch is merged with other dimensions.
  const onnx_value& folded_input(std::size_t i) const;
  /// Like input(), for converters that accept a function of the tokens (onnx_value::of_tokens).
  const onnx_value& token_input(std::size_t i) const;
  /// Makes input() return another value.
  void replace_input(std::size_t i, onnx_value x) { apart_.insert_or_assign(i, std::move(x)); }
  /// Throws if the input is not a sequence of tensors.
  const std::vector<onnx_value>& sequence(std::size_t i) const;
  /// The input as a tensor of the graph.
  expression tensor(std::size_t i) const { return to_tensor(input(i), target()); }
  /// The value of an input that is a constant. Throws if it depends on the model's input. `what`
  /// names it in the error.
  const onnx_constant& known(std::size_t i, std::string_view what) const;
  /// A list of whole numbers whose value must be known.
  std::vector<std::int64_t> integers_of(std::size_t i, std::string_view what) const;
  double number_of(std::size_t i, std::string_view what) const;

  // -- attributes
  bool has(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise);
  double real(std::string_view name, double otherwise);
  std::string text(std::string_view name, std::string_view otherwise);
  std::vector<std::int64_t> integers(std::string_view name,
                                     std::vector<std::int64_t> otherwise = {});
  std::vector<double> reals(std::string_view name);
  std::vector<std::string> texts(std::string_view name);
  const onnx::AttributeProto* attribute(std::string_view name);
  /// Accepts an attribute that has no effect here.
  void ignore(std::string_view name) { read_.emplace(name); }
  /// Throws if the attribute has another value. If the attribute is absent, its value is
  /// `otherwise`.
  void require(std::string_view name, std::int64_t value, std::int64_t otherwise);
  /// Throws if the node has attributes that were not read.
  void finish() const;

  // -- axes
  /// Returns 0 <= result < rank. A negative axis counts from the end.
  std::size_t axis(std::int64_t x, std::size_t rank) const;
  /// Several axes in ascending order. Refuses an axis that is named twice.
  std::vector<std::size_t> axes(const std::vector<std::int64_t>& given, std::size_t rank) const;

  // -- outputs
  std::size_t outputs() const;
  /// True if output i is used: a node reads it, or it is an output of the model.
  bool has_output(std::size_t i) const;
  void set(std::size_t i, onnx_value x);
  void set(onnx_value x) { set(0, std::move(x)); }
  /// The value of output i, which must be used and set.
  const onnx_value& output(std::size_t i) const;
  /// Counts the elements of a constant, before it is computed. Refuses the node if all constants
  /// together become too large. A constant that is passed to set() needs no call, because set()
  /// counts it.
  void charge(std::size_t elements) const;
  /// Computes the nodes of a loop's body or of a branch, which can read all values that this node
  /// can read. Refuses the node if the unrolled loops of the model have too many nodes.
  /// @param inputs the values of the first inputs of `body`
  /// @return the values of its outputs
  std::vector<onnx_value> compute(const onnx::GraphProto& body,
                                  const std::vector<onnx_value>& inputs);
  /// Throws if a node, or the output of the model, reads output i.
  void refuse_output(std::size_t i, std::string_view what) const;

  /// a + b, a - b and so on, with broadcasting.
  onnx_value combine(arithmetic how, const onnx_value& a, const onnx_value& b) const {
    return troupe::combine(how, a, b, target(), limit());
  }

private:
  const onnx_value& named(std::size_t i) const;
  /// True if an input of the node is this constant (the same object, not only an equal one). The
  /// elements of the constant were then counted before (charge).
  bool is_input(const onnx_value& constant) const;
  const onnx::AttributeProto* find(std::string_view name) const;
  const onnx::AttributeProto* typed(std::string_view name, int type);

  const onnx::NodeProto& proto_;
  surroundings& in_;
  /// See take_apart(). Empty if no input has merged dimensions.
  std::vector<std::size_t> merged_;
  /// Inputs whose values were replaced: see take_apart() and replace_input().
  std::map<std::size_t, onnx_value> apart_;
  std::set<std::string, std::less<>> read_;
};

/// Builds the computation of a node, and sets its outputs.
using onnx_converter = void (*)(onnx_node& node);
/// A row of the table of operators.
struct onnx_operator {
  onnx_converter convert = nullptr;
  /// The first operator set that has it; 0 if ONNX does not define it.
  std::int64_t since = 1;
  /// What is not supported, for people. Empty if everything is supported.
  std::string_view limits = {};
};
/// Rows by name of the operator.
using onnx_operators = std::map<std::string, onnx_operator, std::less<>>;

void add_attention_operators(onnx_operators& all);
void add_constant_operators(onnx_operators& all);
void add_einsum_operators(onnx_operators& all);
void add_elementwise_operators(onnx_operators& all);
void add_image_operators(onnx_operators& all);
void add_linear_operators(onnx_operators& all);
void add_loop_operators(onnx_operators& all);
void add_number_operators(onnx_operators& all);
void add_part_operators(onnx_operators& all);
void add_reduction_operators(onnx_operators& all);
void add_sequence_operators(onnx_operators& all);
void add_shape_operators(onnx_operators& all);

/// Builds the computation of a node by the converter of its operator. Throws onnx_node_error.
void convert(onnx_node& node);

/// Computes a node that works element by element on the model's tokens (the node's inputs are
/// functions of the tokens, or single numbers). Returns false, and does nothing, for any other
/// node.
/// @param convert the converter of the node's operator; it computes the result as real numbers
bool compute_of_tokens(onnx_node& node, onnx_converter convert);

/// Converts whole numbers and truth values to real numbers. Whole numbers from the model's input
/// are exact up to 2^24.
onnx_value as_real(const onnx_node& node, const onnx_value& v);

// -- functions that several converters use

/// Like reshaped(), but if the batch cannot stay a separate dimension, it is merged with other
/// dimensions (onnx_value::merged).
onnx_value reshaped_or_merged(const onnx_node& node, const onnx_value& v,
                              const std::vector<double>& dims);

/// v in another shape. The batch stays a separate dimension; the node is refused if that is
/// impossible. The product of the extents before the batch must stay the same, and so must the
/// product of the extents after it.
/// @param dims the extents in ONNX's order. onnx_constant::batch_size stands for the batch. NaN or
/// -1 means an unknown extent, which is computed; besides the batch, one extent may be unknown. If
/// no extent is batch_size, the batch goes to the first dimension at which the products stay the
/// same. There, `dims` must have an unknown extent, 0, 1, or the batch size of the exporter's
/// example.
onnx_value reshaped(const onnx_node& node, const onnx_value& v, const std::vector<double>& dims);
/// Like reshaped(), with known extents. onnx_constant::batch stands for the batch.
onnx_value with_dims(const onnx_node& node, const onnx_value& v,
                     const std::vector<std::int64_t>& dims);

/// All elements of a constant. Throws if there are more than `limit` of them.
std::vector<double> elements_of(const onnx_constant& c, std::size_t limit, const onnx_node& node);

/// Dimension i of the result is dimension axes[i] of v.
onnx_value transposed(const onnx_value& v, const std::vector<std::size_t>& axes, graph& g);

/// v with the dimensions `axes` moved to the end and merged into one. `axes` must not contain the
/// batch. The other dimensions keep their order.
struct onnx_rows {
  expression x; ///< (others..., product of axes)
  std::size_t batch_at = 0;
};
onnx_rows rows_over(const onnx_node& node, const onnx_value& v,
                    const std::vector<std::size_t>& axes);

/// Elements [begin, end) of v along an axis, which must not be the batch.
onnx_value sliced(const onnx_node& node, const onnx_value& v, std::size_t axis, std::int64_t begin,
                  std::int64_t end);

/// Joins the parts along an axis. No part may be empty.
onnx_value concatenated(const onnx_node& node, const std::vector<onnx_value>& parts,
                        std::size_t axis);

/// Repeats v along dimensions of extent 1, up to the extents `dims`. `dims` has the rank of v, and
/// contains the batch at the same position.
onnx_value expanded(const onnx_node& node, const onnx_value& v,
                    const std::vector<std::int64_t>& dims);

/// Multiplies the matrices of a (..., m, k) and b (..., k, n), with NumPy's broadcasting.
onnx_value matrix_product(const onnx_node& node, const onnx_value& a, const onnx_value& b);

/// The maximum of each row: (..., n) to (...).
expression max_last(expression x);

} // namespace troupe
