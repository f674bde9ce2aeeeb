#include "actors/model/model_file.hpp"

#include "actors/model/model_builder.hpp"
#include "actors/model/model_source.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/safetensors.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

BOOST_AUTO_TEST_SUITE(model_file)

using namespace troupe;
using namespace troupe::test;

namespace {

layout digits_layout() {
  return build_model(digits_job().model(), {.dims = {1, 28, 28}, .label_width = 10})
    .graph->parameters();
}

std::vector<float> numbers(std::size_t n) {
  std::vector<float> result(n);
  std::iota(result.begin(), result.end(), 1.0F);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(round_trip_keeps_every_bit) {
  const auto parameters = digits_layout();
  auto weights = numbers(parameters.size());
  weights[0] = std::numeric_limits<float>::quiet_NaN();
  weights[1] = -std::numeric_limits<float>::infinity();
  weights[2] = -0.0F;
  weights[3] = std::numeric_limits<float>::denorm_min();
  const auto bytes = write_model(parameters, weights, {42, "abc"});
  const auto back = read_model(bytes, parameters, "w");
  BOOST_TEST(back.info.version == 42u);
  BOOST_TEST(back.info.job_hash == "abc");
  BOOST_REQUIRE(back.weights.size() == weights.size());
  BOOST_TEST(std::memcmp(back.weights.data(), weights.data(), weights.size() * sizeof(float)) == 0);
}

BOOST_AUTO_TEST_CASE(as_others_see_it) {
  const auto parameters = digits_layout();
  const auto weights = numbers(parameters.size());
  const auto bytes = write_model(parameters, weights, {7, "h"});
  const auto file = parse_safetensors(bytes, "w");
  BOOST_TEST(file.metadata.at("format") == "pt");
  BOOST_TEST(file.metadata.at("model_version") == "7");
  BOOST_TEST(file.metadata.at("job_hash") == "h");
  const auto* bias = file.find("dense_1.bias");
  BOOST_REQUIRE(bias != nullptr);
  BOOST_TEST(bias->shape == std::vector<std::uint64_t>{16});
  float first = 0;
  std::memcpy(&first, bias->bytes.data(), sizeof(float));
  BOOST_TEST(first == weights[16 * 784]);
}

// The expected bits of 16-bit floats are from NumPy (half) and PyTorch (bfloat16).
BOOST_AUTO_TEST_CASE(other_types_and_counters_of_pytorch) {
  const std::vector<float> wanted{1, -2, 0.25F, 65504, 0.000061035156F, -0.0F};
  const std::vector<std::uint16_t> half{0x3C00, 0xC000, 0x3400, 0x7BFF, 0x0400, 0x8000};
  const std::vector<float> rounded{1, -2, 0.25F, 65536, 0.000061035156F, -0.0F};
  const std::vector<std::uint16_t> brain{0x3F80, 0xC000, 0x3E80, 0x4780, 0x3880, 0x8000};
  const std::vector<double> twice{wanted.begin(), wanted.end()};
  const std::int64_t batches = 7;
  graph g;
  g.variable("norm.weight", {6}, initializer::zeros());
  const auto read = [&](safetensors_dtype type, std::span<const std::byte> bytes) {
    safetensors_file file;
    file.tensors = {{"norm.num_batches_tracked",
                     safetensors_dtype::i64,
                     {},
                     std::as_bytes(std::span{&batches, 1})},
                    {"norm.weight", type, {6}, bytes}};
    return read_model(write_safetensors(file), g.parameters(), "w").weights;
  };
  using enum safetensors_dtype;
  BOOST_TEST(read(f16, std::as_bytes(std::span{half})) == wanted, boost::test_tools::per_element());
  BOOST_TEST(read(bf16, std::as_bytes(std::span{brain})) == rounded,
             boost::test_tools::per_element());
  BOOST_TEST(read(f64, std::as_bytes(std::span{twice})) == wanted,
             boost::test_tools::per_element());
  const std::vector<std::uint16_t> special{0x7C00, 0xFC00, 0x7E00, 0x0001, 0x0000, 0x03FF};
  const auto found = read(f16, std::as_bytes(std::span{special}));
  BOOST_TEST(std::isinf(found[0]));
  BOOST_TEST(found[1] < 0);
  BOOST_TEST(std::isnan(found[2]));
  BOOST_TEST(found[3] == 0x1p-24F);
  BOOST_TEST(found[5] == 0x3FFp-24F);
  BOOST_TEST(contains(error_of([&] { read(i16, std::as_bytes(std::span{half})); }),
                      "norm.weight, expected F32 (6), found I16 (6)"));
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto parameters = digits_layout();
  const auto weights = numbers(parameters.size());
  BOOST_TEST(contains(error_of([&] { write_model(parameters, std::span{weights}.first(3), {}); }),
                      "3 weights do not fill"));
  const auto bytes = write_model(parameters, weights, {});
  layout other;
  other.add("dense_1.weight", {16, 783});
  other.add("extra", {1});
  const auto text = error_of([&] { read_model(bytes, other, "w.safetensors"); });
  BOOST_TEST(contains(text, "w.safetensors: the tensors do not match this model"));
  BOOST_TEST(contains(text, "differs: dense_1.weight"));
  BOOST_TEST(contains(text, "missing: extra"));
  BOOST_TEST(contains(text, "extra: head.bias"));
  safetensors_file file;
  file.metadata["model_version"] = "many";
  BOOST_TEST(contains(error_of([&] { read_model(write_safetensors(file), {}, "w"); }),
                      "expected a number, found \"many\""));
  BOOST_TEST(read_model(write_safetensors({}), {}, "w").info.version == 0u);
}

namespace {

/// A file with vectors of these names and sizes. Their values are 1, 2, 3, ...
std::vector<std::byte> file_of(const std::vector<std::pair<std::string, std::uint64_t>>& tensors) {
  static const auto values = [] {
    std::vector<float> result(99);
    std::iota(result.begin(), result.end(), 1.0F);
    return result;
  }();
  static const std::int64_t count = 7;
  safetensors_file file;
  for (const auto& [name, n] : tensors)
    file.tensors.push_back(
      {name, safetensors_dtype::f32, {n}, std::as_bytes(std::span{values}.first(n))});
  file.tensors.push_back(
    {"norm.num_batches_tracked", safetensors_dtype::i64, {}, std::as_bytes(std::span{&count, 1})});
  return write_safetensors(file);
}

layout two_parts() {
  layout result;
  result.add("encoder.w", {2});
  result.add("encoder.b", {1});
  result.add("head.w", {3});
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(some_tensors_of_a_file) {
  using names = std::vector<std::string>;
  using floats = std::vector<float>;
  const auto parameters = two_parts();
  const auto load = [&](const std::vector<std::pair<std::string, std::uint64_t>>& tensors,
                        const tensor_choice& choice, const floats& wanted) {
    floats weights(6, -1);
    const auto left = read_tensors(file_of(tensors), parameters, choice, weights, "w");
    BOOST_TEST(weights == wanted, boost::test_tools::per_element());
    BOOST_TEST(left.counters == 1u);
    return left;
  };
  // The job does not choose tensors. Then all tensors that fit are taken, like strict=False in
  // PyTorch.
  auto left = load({{"encoder.w", 2}, {"other", 4}}, {}, {1, 2, -1, -1, -1, -1});
  BOOST_TEST(left.taken == 1u);
  BOOST_TEST(left.missing == (names{"encoder.b", "head.w"}), boost::test_tools::per_element());
  BOOST_TEST(left.unused == names{"other"}, boost::test_tools::per_element());
  // A tensor of a different size is not taken.
  const std::vector<std::pair<std::string, std::uint64_t>> whole{
    {"encoder.b", 1}, {"encoder.w", 2}, {"head.w", 9}};
  for (const auto& choice :
       {tensor_choice{{"encoder.*"}, {}, {}}, tensor_choice{{}, {"head.*"}, {}}}) {
    left = load(whole, choice, {1, 2, 1, -1, -1, -1});
    BOOST_TEST(left.taken == 2u);
    BOOST_TEST(left.missing.empty());
    BOOST_TEST(left.unused == names{"head.w"}, boost::test_tools::per_element());
  }
  // The tensors have other names in the file, and the job renames them. The first renaming that
  // fits is used.
  left = load({{"model.body.w", 2}, {"model.body.b", 1}, {"fc.w", 3}},
              {{}, {}, {{"encoder.", "model.body."}, {"head.", "fc."}, {"enc", "x"}}},
              {1, 2, 1, 1, 2, 3});
  BOOST_TEST(left.missing.empty());
  BOOST_TEST(left.unused.empty());
  left = load({{"m.encoder.w", 2}}, {{"*.w"}, {}, {{"", "m."}}}, {1, 2, -1, -1, -1, -1});
  BOOST_TEST(left.missing == names{"m.head.w"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tensors_that_do_not_fit) {
  const auto said = [](const std::vector<std::pair<std::string, std::uint64_t>>& tensors,
                       const tensor_choice& choice) {
    return error_of([&] {
      std::vector<float> weights(6, -1);
      read_tensors(file_of(tensors), two_parts(), choice, weights, "w.safetensors");
    });
  };
  const auto shapes = said({{"encoder.w", 3}, {"encoder.b", 4}}, {});
  BOOST_TEST(contains(shapes, "encoder.w"));
  BOOST_TEST(contains(shapes, "encoder.b"));
  BOOST_TEST(contains(said({{"encoder.w", 2}}, {{"decoder.*"}, {}, {}}),
                      "no tensor of the model fits \"decoder.*\""));
  BOOST_TEST(contains(said({{"encoder.w", 2}}, {{}, {"fc.*"}, {}}), "fits \"fc.*\""));
  BOOST_TEST(contains(said({{"body.w", 2}}, {}),
                      "w.safetensors: it has none of the tensors that the job takes, such as "
                      "\"encoder.w\"; it has \"body.w\", .... model.partial_weights.rename"));
}

// A job takes some of its initial weights from a file. The others have the values of their
// initializers.
BOOST_AUTO_TEST_CASE(initial_weights_in_part) {
  const auto parameters = digits_layout();
  const temporary_directory folder;
  const auto path = (folder / "w.safetensors").string();
  auto job = digits_job();
  const auto begin = [&](std::vector<std::string>& notices) {
    return initial_weights(job, parameters, notices);
  };
  std::vector<std::string> notices;
  BOOST_TEST(!begin(notices));
  job.mutable_model()->set_initial_weights(path);
  const auto& entries = parameters.entries();
  const auto size = static_cast<std::uint64_t>(entries[1].size);
  BOOST_TEST_REQUIRE(size <= 99u);
  write_file(path, file_of({{"old." + entries[1].name, size}, {"fc", 3}}));
  BOOST_TEST(contains(error_of([&] { begin(notices); }), entries[0].name));
  auto& how = *job.mutable_model()->mutable_partial_weights();
  how.add_except(entries[0].name);
  auto& rename = *how.add_rename();
  rename.set_file("old.");
  notices.clear();
  const auto found = begin(notices).value();
  std::vector<float> wanted(parameters.size());
  initialize(parameters, {0, parameters.size()}, job.seed(), wanted);
  std::iota(wanted.begin() + static_cast<std::ptrdiff_t>(entries[1].offset),
            wanted.begin() + static_cast<std::ptrdiff_t>(entries[1].offset + size), 1.0F);
  BOOST_TEST(found == wanted, boost::test_tools::per_element());
  std::string told;
  for (const auto& x : notices)
    told += x + '\n';
  BOOST_TEST(contains(told,
                      "w.safetensors: 1 of " + std::to_string(entries.size())
                        + " tensors of the model are taken"));
  BOOST_TEST(contains(told, "w.safetensors: 1 tensor of it not used: fc"));
  BOOST_TEST(contains(told, "w.safetensors: 1 counter \"*.num_batches_tracked\" skipped"));
  BOOST_TEST((entries.size() == 2 || contains(told, "missing in it")));
}

// Weights that are not finite are refused, as a start for training and for predictions.
BOOST_AUTO_TEST_CASE(weights_that_are_no_numbers_are_named) {
  const auto parameters = digits_layout();
  const auto& entry = parameters.entries()[1];
  const temporary_directory folder;
  auto job = digits_job();
  job.mutable_model()->set_initial_weights((folder / "w.safetensors").string());
  const auto load = [&](float value) {
    auto weights = numbers(parameters.size());
    weights[entry.offset + 2] = value;
    write_file(folder / "w.safetensors", write_model(parameters, weights, {}));
    return error_of([&] {
      std::vector<std::string> notices;
      initial_weights(job, parameters, notices);
    });
  };
  BOOST_TEST(load(1) == "(no error)");
  // An output directory stands for its weights.
  write_file(folder / "weights.safetensors",
             write_model(parameters, numbers(parameters.size()), {}));
  job.mutable_model()->set_initial_weights(folder.path().string());
  std::vector<std::string> none;
  BOOST_TEST(initial_weights(job, parameters, none).value() == numbers(parameters.size()),
             boost::test_tools::per_element());
  job.mutable_model()->set_initial_weights((folder / "w.safetensors").string());
  const auto text =
    "w.safetensors: tensor \"" + entry.name + "\" " + to_string(entry.shape) + " holds ";
  BOOST_TEST(contains(load(NAN), text + "nan as element 2; expected finite numbers"));
  BOOST_TEST(contains(load(-HUGE_VALF), text + "-inf as element 2"));
}

BOOST_AUTO_TEST_SUITE_END()
