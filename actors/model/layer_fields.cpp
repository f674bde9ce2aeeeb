#include "actors/model/layer_fields.hpp"

#include "actors/model/layer_list.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// Upper bounds of units, filters and sizes. With them, a product of a few such numbers cannot
/// overflow.
constexpr std::uint32_t most_units = 1U << 24;
constexpr std::uint32_t largest_window = 1U << 12;

/// Checks the fields of one layer.
class field_checker {
public:
  field_checker(const proto::Layer& layer, std::string path, problem_list& problems)
    : path_(std::move(path)), line_(at_line(layer)), problems_(problems) {}

  void require(bool ok, const std::string& field, const std::string& what) const {
    problems_.require(ok, path_ + field, what + line_);
  }

  void count(std::uint32_t x, const std::string& field, std::uint32_t most = most_units) const {
    require(x >= 1 && x <= most, field,
            "expected 1 to " + std::to_string(most) + ", got " + std::to_string(x));
  }

  /// Checks a list with a height and a width. A list of one number gives both.
  template <class List>
  void pair(const List& list, const std::string& field, std::uint32_t least, bool needed) const {
    require(list.size() <= 2 && (!needed || list.size() > 0), field,
            "expected one number, or two: height and width");
    for (const auto x : list)
      require(x >= least && x <= largest_window, field,
              "expected " + std::to_string(least) + " to " + std::to_string(largest_window)
                + ", got " + std::to_string(x));
  }

  void positive(double x, const std::string& field) const {
    require(std::isfinite(x) && x > 0, field,
            "expected a finite number, more than 0, got " + std::to_string(x));
  }

  void initializer(bool given, const proto::Initializer& x, const std::string& field) const {
    if (!given)
      return;
    require(x.kind_case() != proto::Initializer::KIND_NOT_SET, field,
            "no kind; add one, such as glorot_uniform {}");
    require(std::isfinite(x.constant().value()), field + ".constant.value",
            "expected a finite number");
    positive(x.normal().deviation(), field + ".normal.deviation");
    positive(x.uniform().bound(), field + ".uniform.bound");
    positive(x.orthogonal().gain(), field + ".orthogonal.gain");
  }

  void check(const proto::Dense& x) const {
    count(x.units(), ".dense.units");
    initializer(x.has_weights(), x.weights(), ".dense.weights");
  }

  void check(const proto::Conv2d& x) const {
    count(x.filters(), ".conv2d.filters");
    count(x.groups(), ".conv2d.groups");
    window(x, ".conv2d");
    pair(x.dilation(), ".conv2d.dilation", 1, false);
    initializer(x.has_weights(), x.weights(), ".conv2d.weights");
  }

  void check(const proto::ConvTranspose2d& x) const {
    count(x.filters(), ".conv_transpose2d.filters");
    count(x.groups(), ".conv_transpose2d.groups");
    window(x, ".conv_transpose2d");
    pair(x.output_padding(), ".conv_transpose2d.output_padding", 0, false);
    pair(x.dilation(), ".conv_transpose2d.dilation", 1, false);
    initializer(x.has_weights(), x.weights(), ".conv_transpose2d.weights");
  }

  void check(const proto::Attention& x, int inputs) const {
    count(x.heads(), ".attention.heads");
    initializer(x.has_weights(), x.weights(), ".attention.weights");
    require(inputs < 2 || !x.causal(), ".attention.causal",
            "attention over a second input cannot be causal; add causal: false");
  }

  template <class Window>
  void window(const Window& x, const std::string& field) const {
    pair(x.kernel(), field + ".kernel", 1, true);
    pair(x.stride(), field + ".stride", 1, false);
    pair(x.padding(), field + ".padding", 0, false);
  }

  void check(const proto::Embedding& x) const {
    count(x.width(), ".embedding.width");
    if (x.has_entries())
      count(x.entries(), ".embedding.entries");
    initializer(x.has_weights(), x.weights(), ".embedding.weights");
  }

  void check(const proto::Recurrent& x, const std::string& field) const {
    count(x.hidden(), field + ".hidden");
    count(x.layers(), field + ".layers", 64);
    initializer(x.has_weights(), x.weights(), field + ".weights");
    initializer(x.has_recurrent_weights(), x.recurrent_weights(), field + ".recurrent_weights");
    require(!x.has_reset_after() || field == ".gru", field + ".reset_after",
            "only a gru has a reset gate; leave it out");
  }

  void check(const proto::BatchNorm& x) const {
    positive(x.epsilon(), ".batch_norm.epsilon");
    require(x.momentum() > 0 && x.momentum() <= 1, ".batch_norm.momentum",
            "expected more than 0, at most 1, got " + std::to_string(x.momentum()));
  }

  void check(const proto::Slice& x) const {
    require(x.axis() >= 1, ".slice.axis", "axis 0 is the batch; expected 1 or more");
    require(!x.has_end() || x.end() > x.begin(), ".slice.end", "expected more than begin");
  }

  void axis(std::uint32_t x, const std::string& field) const {
    require(x >= 1, field + ".axis", "axis 0 is the batch; expected 1 or more");
  }

private:
  std::string path_;
  std::string line_;
  problem_list& problems_;
};

} // namespace

input_count inputs_needed(const proto::Layer& layer) {
  constexpr auto any = std::numeric_limits<std::size_t>::max();
  switch (layer.kind_case()) {
  case proto::Layer::kAdd:
  case proto::Layer::kMultiply:
  case proto::Layer::kConcat:
    return {2, any, "two inputs or more"};
  case proto::Layer::kMatmul:
    return {2, 2, "two inputs"};
  case proto::Layer::kAttention:
    return {1, 2, "one input or two"};
  default:
    return {};
  }
}

void check_layer(const proto::Layer& layer, const std::string& path, problem_list& problems) {
  const field_checker check{layer, path, problems};
  switch (layer.kind_case()) {
  case proto::Layer::kDense:
    return check.check(layer.dense());
  case proto::Layer::kConv2D:
    return check.check(layer.conv2d());
  case proto::Layer::kConvTranspose2D:
    return check.check(layer.conv_transpose2d());
  case proto::Layer::kMaxPool:
    return check.window(layer.max_pool(), ".max_pool");
  case proto::Layer::kAveragePool:
    return check.window(layer.average_pool(), ".average_pool");
  case proto::Layer::kReshape:
    check.require(layer.reshape().dims_size() >= 1 && layer.reshape().dims_size() <= 7,
                  ".reshape.dims", "expected 1 to 7 numbers");
    for (const auto x : layer.reshape().dims())
      check.count(x, ".reshape.dims");
    return;
  case proto::Layer::kBatchNorm:
    return check.check(layer.batch_norm());
  case proto::Layer::kLayerNorm:
    return check.positive(layer.layer_norm().epsilon(), ".layer_norm.epsilon");
  case proto::Layer::kRmsNorm:
    return check.positive(layer.rms_norm().epsilon(), ".rms_norm.epsilon");
  case proto::Layer::kGroupNorm:
    check.count(layer.group_norm().groups(), ".group_norm.groups");
    return check.positive(layer.group_norm().epsilon(), ".group_norm.epsilon");
  case proto::Layer::kDropout:
    return check.require(layer.dropout().rate() >= 0 && layer.dropout().rate() < 1, ".dropout.rate",
                         "expected 0 or more and less than 1, got "
                           + std::to_string(layer.dropout().rate()));
  case proto::Layer::kEmbedding:
    return check.check(layer.embedding());
  case proto::Layer::kPositionEmbedding:
    return check.initializer(layer.position_embedding().has_weights(),
                             layer.position_embedding().weights(), ".position_embedding.weights");
  case proto::Layer::kRnn:
    return check.check(layer.rnn(), ".rnn");
  case proto::Layer::kLstm:
    return check.check(layer.lstm(), ".lstm");
  case proto::Layer::kGru:
    return check.check(layer.gru(), ".gru");
  case proto::Layer::kAttention:
    return check.check(layer.attention(), layer.input_size());
  case proto::Layer::kConcat:
    return check.axis(layer.concat().axis(), ".concat");
  case proto::Layer::kTranspose:
    return check.require(layer.transpose().axes_size() >= 2 && layer.transpose().axes_size() <= 8,
                         ".transpose.axes", "expected 2 to 8 numbers, the first 0 (the batch)");
  case proto::Layer::kSlice:
    return check.check(layer.slice());
  case proto::Layer::kSum:
    return check.axis(layer.sum().axis(), ".sum");
  case proto::Layer::kMean:
    return check.axis(layer.mean().axis(), ".mean");
  case proto::Layer::KIND_NOT_SET:
    return check.require(false, "", "no kind; add one, such as dense { units: 10 }");
  default: // The other kinds have no fields that could be wrong.
    return;
  }
}

} // namespace troupe
