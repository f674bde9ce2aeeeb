#include "actors/model/token_input.hpp"

#include "actors/model/model_source.hpp"
#include "actors/model/onnx/importer.hpp"
#include "kernels/data/arrays.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace troupe {

namespace {

using layers = google::protobuf::RepeatedPtrField<proto::Layer>;

/// Finds the embedding that reads the features. Null if there is none.
/// @param source the name by which these layers read the features: "features", or "input" in a
/// block
const proto::Embedding* reader_of(const layers& all, const std::string& source) {
  for (int i = 0; i < all.size(); ++i) {
    const auto& x = all[i];
    const bool reads =
      x.input().empty() ? i == 0 : std::ranges::find(x.input(), source) != x.input().end();
    if (!reads)
      continue;
    if (x.has_embedding())
      return &x.embedding();
    if (const auto* inside = reader_of(x.block().layer(), "input"))
      return inside;
  }
  return nullptr;
}

} // namespace

std::optional<std::size_t> token_input(const proto::Model& model) {
  if (const auto bytes = onnx_structure_of(model); !bytes.empty()) {
    const auto onnx = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), model.onnx());
    const auto ports = onnx_inputs(onnx);
    if (ports.size() != 1 || ports[0].type != dtype::int32)
      return std::nullopt;
    const auto rows = onnx_table_rows(onnx, ports[0].name);
    return rows == 0 ? any_int32 : rows;
  }
  const auto* embedding = reader_of(model.layer(), "features");
  return embedding == nullptr ? std::nullopt : std::optional<std::size_t>{embedding->entries()};
}

bool reads_int64(const proto::Model& model) {
  const auto bytes = onnx_structure_of(model);
  if (bytes.empty())
    return false;
  const auto ports =
    onnx_inputs(onnx_model::parse_structure(std::as_bytes(std::span{bytes}), model.onnx()));
  return ports.size() == 1 && ports[0].is_int64;
}

} // namespace troupe
