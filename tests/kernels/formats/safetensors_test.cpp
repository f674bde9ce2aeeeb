#include "kernels/formats/safetensors.hpp"

#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

BOOST_AUTO_TEST_SUITE(safetensors)

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<float> weight{1, 2, 3, 4, 5, 6};
const std::vector<double> doubles{0.5, -0.5};
const std::vector<std::uint8_t> flags{1, 0, 1};

safetensors_file sample() {
  safetensors_file file;
  file.metadata = {{"format", "pt"}, {"quote", "a \"b\" \\ \n \xc3\xa4"}};
  file.tensors = {{"z.weight", safetensors_dtype::f32, {2, 3}, std::as_bytes(std::span{weight})},
                  {"flags", safetensors_dtype::u8, {3}, std::as_bytes(std::span{flags})},
                  {"a.double", safetensors_dtype::f64, {2}, std::as_bytes(std::span{doubles})},
                  {"scalar", safetensors_dtype::f32, {}, std::as_bytes(std::span{weight}.first(1))},
                  {"none", safetensors_dtype::i64, {0, 5}, {}}};
  return file;
}

/// A safetensors file with this header, and with this many bytes of data.
std::vector<std::byte> with_header(const std::string& header, std::size_t data) {
  std::vector<std::byte> bytes(8);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  const auto text = bytes_of(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(bytes.size() + data, std::byte{7});
  return bytes;
}

std::string parse_error(const std::string& header, std::size_t data) {
  const auto bytes = with_header(header, data);
  return error_of([&] { parse_safetensors(bytes, "f"); });
}

std::string braces(const std::string& inside) {
  return std::string{"{"}.append(inside).append("}");
}

std::string tensor(const std::string& name, const std::string& shape, int begin, int end,
                   const std::string& dtype = "F32") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)"
    + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

} // namespace

BOOST_AUTO_TEST_CASE(round_trip) {
  const auto original = sample();
  const auto bytes = write_safetensors(original);
  const auto file = parse_safetensors(bytes, "f");
  BOOST_TEST((file.metadata == original.metadata));
  BOOST_TEST(file.tensors.size() == original.tensors.size());
  for (const auto& want : original.tensors) {
    const auto* got = file.find(want.name);
    BOOST_REQUIRE(got != nullptr);
    BOOST_TEST((got->dtype == want.dtype));
    BOOST_TEST(got->shape == want.shape);
    BOOST_TEST(std::ranges::equal(got->bytes, want.bytes));
  }
  BOOST_TEST(file.find("absent") == nullptr);
  BOOST_TEST((write_safetensors(file) == bytes)); // tensors in another order give the same bytes
}

BOOST_AUTO_TEST_CASE(no_tensors) {
  const auto bytes = write_safetensors({});
  BOOST_TEST(bytes.size() == 16u); // as the reference writes it: 8 + "{}" padded to 8
  BOOST_TEST(parse_safetensors(bytes, "f").tensors.empty());
}

// Reads a written file by the description of the format, without the reader of this project.
BOOST_AUTO_TEST_CASE(independent_parse) {
  const auto bytes = write_safetensors(sample());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  BOOST_TEST((8 + length) % 8 == 0u);
  const std::string header{reinterpret_cast<const char*>(bytes.data()) + 8, length};
  BOOST_TEST(header.front() == '{');
  BOOST_TEST(header.find_last_not_of(' ') == header.rfind('}'));
  const auto json = nlohmann::ordered_json::parse(header);
  BOOST_TEST(json["__metadata__"]["format"] == "pt");
  std::vector<std::string> order;
  std::size_t end = 0;
  for (const auto& [name, value] : json.items()) {
    order.push_back(name);
    if (name == "__metadata__")
      continue;
    BOOST_TEST(value["data_offsets"][0] == end);
    end = value["data_offsets"][1];
  }
  // As in the reference implementation, types with a larger alignment come first, and tensors with
  // the same alignment are sorted by name.
  BOOST_TEST(order
             == (std::vector<std::string>{"__metadata__", "none", "a.double", "scalar", "z.weight",
                                          "flags"}));
  BOOST_TEST(8 + length + end == bytes.size());
  const std::size_t at = json["z.weight"]["data_offsets"][0];
  float value = 0;
  std::memcpy(&value, bytes.data() + 8 + length + at + 5 * sizeof(float), sizeof(float));
  BOOST_TEST(value == 6.0F);
  BOOST_TEST(json["z.weight"]["shape"] == nlohmann::ordered_json({2, 3}));
  BOOST_TEST(json["z.weight"]["dtype"] == "F32");
}

// A file of one tensor that the reference implementation wrote (safetensors.numpy.save). Writing
// the tensor must give the same bytes.
BOOST_AUTO_TEST_CASE(reference_file) {
  const auto bytes = with_header(R"({"t":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}   )", 8);
  const auto file = parse_safetensors(bytes, "f");
  BOOST_TEST((file.find("t")->dtype == safetensors_dtype::i32));
  BOOST_TEST(file.find("t")->bytes.size() == 8u);
}

BOOST_AUTO_TEST_CASE(header_errors) {
  BOOST_TEST(contains(error_of([] { parse_safetensors(bytes_of("1234"), "f"); }), "f: truncated"));
  auto giant = with_header("{}", 0);
  std::memset(giant.data(), 0xff, 8);
  BOOST_TEST(contains(error_of([&] { parse_safetensors(giant, "f"); }),
                      "the header should be 18446744073709551615 bytes"));
  BOOST_TEST(contains(parse_error("[]", 0), "not a JSON object"));
  BOOST_TEST(contains(parse_error("{\"a\":", 0), "f: header:1:6: not valid JSON"));
  BOOST_TEST(contains(parse_error("{\"a\":1e999}", 0), "not valid JSON"));
  BOOST_TEST(contains(parse_error("{\"\xff\":1}", 0), "not valid JSON"));
  BOOST_TEST(contains(parse_error(std::string(100'000, '['), 0), "nested more than 64 deep"));
  // Long headers are refused, because parsing takes tens of bytes of memory for each byte of a
  // header.
  BOOST_TEST(contains(parse_error(std::string(100'000'001, ' '), 0),
                      "the header should be 100000001 bytes long; the file has 100000001 after its "
                      "length, and headers of up to 100000000 bytes are accepted"));
  const safetensors_file long_header{{{"text", std::string(100'000'000, 'x')}}, {}};
  BOOST_TEST(contains(error_of([&] { write_safetensors(long_header); }),
                      "expected at most 100000000: fewer tensors, or shorter names"));
  BOOST_TEST(contains(parse_error(std::string{"{\"a\":"}.append(100000, '{'), 0), "JSON"));
  BOOST_TEST(contains(parse_error(R"({"__metadata__":{"a":1}})", 0), "\"a\" is not a string"));
  BOOST_TEST(contains(parse_error(R"({"__metadata__":[]})", 0), "not an object"));
  BOOST_TEST(
    contains(parse_error(braces(tensor("a", "[1]", 0, 4) + "," + tensor("a", "[1]", 4, 8)), 8),
             "f: header: a: occurs twice"));
}

BOOST_AUTO_TEST_CASE(tensor_errors) {
  const auto one = [](const std::string& t, std::size_t data) {
    return parse_error(braces(t), data);
  };
  BOOST_TEST(
    contains(one(tensor("a", "[1]", 0, 4, "F33"), 4), "f: tensor \"a\": unknown dtype \"F33\""));
  BOOST_TEST(contains(one(tensor("a", "[1]", 0, 4), 3), "do not lie within the 3 bytes"));
  BOOST_TEST(contains(one(tensor("a", "[1]", 4, 0), 4), "do not lie within"));
  BOOST_TEST(contains(one(tensor("a", "[2]", 0, 4), 4), "F32 (2) does not take the 4 bytes"));
  BOOST_TEST(contains(one(tensor("a", "[-1]", 0, 4), 4), "not a list of sizes"));
  BOOST_TEST(contains(one(tensor("a", "[1.5]", 0, 4), 4), "not a list of sizes"));
  BOOST_TEST(contains(one(tensor("a", "[18446744073709551616]", 0, 4), 4), "not a list of sizes"));
  BOOST_TEST(contains(one(tensor("a", "[4294967296,4294967296,4]", 0, 4), 4), "does not take"));
  BOOST_TEST(contains(one(tensor("a", "[1000000000000000000]", 0, 4), 4), "does not take"));
  BOOST_TEST(contains(one(tensor("a", "[1]", 0, 4), 8),
                      "4 bytes at the end of the data belong to no tensor"));
  BOOST_TEST(contains(one(tensor("a", "[1]", 4, 8), 8), "belong to no tensor"));
  BOOST_TEST(contains(one(tensor("a", "[2]", 0, 8) + "," + tensor("b", "[2]", 4, 12), 12),
                      "tensor \"b\": overlaps"));
  BOOST_TEST(
    contains(one(tensor("a", "[1]", 0, 4) + "," + tensor("b", "[1]", 0, 4), 4), "overlaps"));
  BOOST_TEST(contains(one(R"("a":{"dtype":"F32","shape":[1]})", 4), "expected an object of dtype"));
  BOOST_TEST(contains(one(R"("a":3)", 4), "expected an object of dtype"));
}

BOOST_AUTO_TEST_CASE(writer_errors) {
  const auto write = [](safetensors_entry entry, int times) {
    return error_of([&] {
      write_safetensors(
        {{}, std::vector<safetensors_entry>(static_cast<std::size_t>(times), entry)});
    });
  };
  const auto data = std::as_bytes(std::span{weight}.first(1));
  BOOST_TEST(
    contains(write({"a", safetensors_dtype::f32, {2}, data}, 1), "4 bytes do not fill F32 (2)"));
  BOOST_TEST(
    contains(write({"a", safetensors_dtype::f32, {1}, data}, 2), "two tensors are named \"a\""));
  BOOST_TEST(contains(write({"", safetensors_dtype::f32, {1}, data}, 1), "cannot be named"));
  BOOST_TEST(
    contains(write({"__metadata__", safetensors_dtype::f32, {1}, data}, 1), "cannot be named"));
  BOOST_TEST(contains(write({"\xff", safetensors_dtype::f32, {1}, data}, 1), "UTF-8"));
}

BOOST_AUTO_TEST_CASE(all_differences_are_listed) {
  const auto bytes = write_safetensors(sample());
  const auto file = parse_safetensors(bytes, "f");
  const std::vector<expected_tensor> same{{"z.weight", safetensors_dtype::f32, {2, 3}},
                                          {"flags", safetensors_dtype::u8, {3}},
                                          {"a.double", safetensors_dtype::f64, {2}},
                                          {"scalar", safetensors_dtype::f32, {}},
                                          {"none", safetensors_dtype::i64, {0, 5}}};
  BOOST_TEST(error_of([&] { require_tensors(file, same, "f"); }) == "(no error)");
  const std::vector<expected_tensor> other{{"z.weight", safetensors_dtype::f32, {3, 2}},
                                           {"a.double", safetensors_dtype::f32, {2}},
                                           {"scalar", safetensors_dtype::f32, {}},
                                           {"new", safetensors_dtype::f32, {1}}};
  const auto text = error_of([&] { require_tensors(file, other, "f"); });
  BOOST_TEST(contains(text, "differs: z.weight, expected F32 (3, 2), found F32 (2, 3)"));
  BOOST_TEST(contains(text, "differs: a.double, expected F32 (2), found F64 (2)"));
  BOOST_TEST(contains(text, "missing: new, expected F32 (1)"));
  BOOST_TEST(contains(text, "extra: flags, U8 (3)"));
  BOOST_TEST(contains(text, "extra: none, I64 (0, 5)"));
  BOOST_TEST(std::ranges::count(text, '\n') == 5);
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const auto bytes = write_safetensors(sample());
  BOOST_TEST(survive_hostile_variants(bytes, [](auto b) { parse_safetensors(b, "f"); }) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
