#include "actors/checkpoint/checkpoint_manifest.hpp"

#include "tests/support/input_errors.hpp"

#include <nlohmann/json.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(checkpoint_manifest)

namespace {

checkpoint_manifest example() {
  checkpoint_manifest x;
  x.step = 50;
  x.cut = {2, {{0, 10}, {20, 100}}};
  x.samples = 210;
  x.view = 3;
  x.data = {{.dims = {1, 28, 28}, .label_width = 10}, 100};
  x.fingerprint.emplace().mutable_train()->set_labels(7);
  x.job = "epochs: 3\n";
  x.job_hash = "abc";
  x.troupe_version = "0.1.0";
  x.pacing.emplace().set_loss(0.1);
  x.pacing->set_gradients(~std::uint64_t{0});
  x.pacing->mutable_pacing()->set_damping(1.0 / 3);
  x.best = {0.1, 40, 2, 3, 49};
  x.marks = {{1, ~std::uint64_t{0}, 49, 7, 3},
             {2, 5, 30, 8, 1, 44, loss_scale_state{std::uint64_t{1} << 60, 7}}};
  x.files = {{"weights.safetensors", 12, "def"}};
  return x;
}

checkpoint_manifest parse(std::string_view text) {
  return parse_manifest(bytes_of(text), "checkpoint.json");
}

/// Changes one field of the example (null: removes it) and reads the result. Returns the error.
std::string error_with(const std::string& key, const nlohmann::json& value) {
  auto x = nlohmann::json::parse(to_json(example()));
  if (value.is_null())
    x.erase(key);
  else
    x[key] = value;
  return error_of([&] { parse(x.dump()); });
}

} // namespace

BOOST_AUTO_TEST_CASE(names) {
  BOOST_TEST(checkpoint_name(50) == "step-00000050");
  BOOST_TEST(checkpoint_name(1'234'567'890) == "step-1234567890");
  for (const std::uint64_t step : {1ULL, 50ULL, 99'999'999ULL, ~0ULL})
    BOOST_TEST(checkpoint_step(checkpoint_name(step)) == step);
  for (const auto* name : {"", "step-", "step-x", "step-5x", "step--5", "other-00000050",
                           "step-99999999999999999999999"})
    BOOST_TEST(checkpoint_step(name) == 0U, name);
}

BOOST_AUTO_TEST_CASE(there_and_back) {
  const auto x = example();
  const auto y = parse(to_json(x));
  BOOST_TEST(y.step == x.step);
  BOOST_TEST((y.cut == x.cut));
  BOOST_TEST(y.samples == x.samples);
  BOOST_TEST(y.view == x.view);
  BOOST_TEST((y.data == x.data));
  BOOST_TEST(y.fingerprint.value().train().labels() == 7U);
  BOOST_TEST(y.job == x.job);
  BOOST_TEST(y.job_hash == x.job_hash);
  BOOST_TEST(y.troupe_version == x.troupe_version);
  BOOST_TEST(y.pacing.value().ShortDebugString() == x.pacing->ShortDebugString());
  BOOST_TEST((y.pacing->pacing().damping() == 1.0 / 3 && y.pacing->loss() == 0.1), "all digits");
  BOOST_TEST((y.best == x.best));
  BOOST_TEST((y.marks == x.marks));
  BOOST_TEST((y.files == x.files));
}

BOOST_AUTO_TEST_CASE(wrong_fields_are_named) {
  BOOST_TEST(contains(error_with("step", nullptr), "checkpoint.json: step: missing"));
  BOOST_TEST(contains(error_with("pacing", 3), "checkpoint.json: pacing: "));
  BOOST_TEST(contains(error_with("pacing", {{"loss", "much"}}), "checkpoint.json: pacing: "));
  BOOST_TEST(contains(error_with("step", 0), "step: expected at least 1"));
  BOOST_TEST(contains(error_with("step", -1), "step: expected a whole number"));
  BOOST_TEST(contains(error_with("step", "50"), "step: expected a whole number"));
  BOOST_TEST(contains(error_with("epoch", 1ULL << 32), "epoch: expected a whole number"));
  for (const auto* count : {"step", "samples", "view"})
    BOOST_TEST(contains(error_with(count, (1ULL << 48) + 1), ": expected at most 281474976710656"));
  BOOST_TEST(contains(error_with("job", 1), "job: expected a text"));
  BOOST_TEST(contains(error_with("data", 1), "data: expected an object"));
  BOOST_TEST(
    contains(error_with("data", nlohmann::json::object()), "data: train_records: missing"));
  BOOST_TEST(contains(error_with("marks", 1), "marks: expected a list"));
  BOOST_TEST(contains(error_with("marks", {1}), "marks: expected an object"));
  auto marks = nlohmann::json::parse(to_json(example())).at("marks");
  marks[1]["updates"] = -1;
  BOOST_TEST(contains(error_with("marks", marks), "marks: updates: expected a whole number"));
  marks[1].erase("updates");
  for (const std::uint64_t scale : {0ULL, 3ULL, 1ULL << 61}) {
    marks[1]["loss_scale"]["value"] = scale;
    BOOST_TEST(contains(error_with("marks", marks),
                        "marks: loss_scale: value: expected a power of two, at most 2^60"));
  }
  BOOST_TEST(contains(error_with("files", nlohmann::json::array({nlohmann::json::object()})),
                      "files: name: missing"));
  BOOST_TEST(contains(error_with("fingerprint", "train {"), "fingerprint: expected hashes"));
  BOOST_TEST(contains(error_with("best", 1), "best: expected an object"));
  BOOST_TEST(contains(error_with("best", {{"loss", "low"}}), "best: loss: expected a number"));
  BOOST_TEST(error_with("best", nullptr) == "(no error)");
  // Older versions of troupe wrote checkpoints without a fingerprint. They can still be read.
  BOOST_TEST(error_with("fingerprint", nullptr) == "(no error)");
  BOOST_TEST(contains(error_with("format", 2), "version 2, but this troupe reads version 1"));
}

BOOST_AUTO_TEST_CASE(scales_of_resumed_workers) {
  const auto scale = [](std::uint64_t value, std::uint32_t batches) {
    return std::optional{loss_scale_state{value, batches}};
  };
  const std::vector<checkpoint_mark> marks{
    {0, 1, 1, 1, 1, {}, scale(8, 5)}, {1, 1, 1, 1, 1, {}, scale(64, 6)}, {2, 1, 1, 1, 1}};
  BOOST_TEST((resumed_scale(marks, 0) == scale(8, 5)));
  BOOST_TEST((resumed_scale(marks, 1) == scale(64, 6)));
  for (const std::uint32_t other : {2, 3}) // worker 2 has no loss scale in the checkpoint, 3 is new
    BOOST_TEST((resumed_scale(marks, other) == scale(64, 0)));
  BOOST_TEST(!resumed_scale(std::span{marks}.subspan(2), 2));
}

BOOST_AUTO_TEST_CASE(ranges_must_make_sense) {
  using list = std::vector<std::vector<int>>;
  BOOST_TEST(error_with("remaining", list{}) == "(no error)");
  BOOST_TEST(error_with("remaining", list{{0, 50}, {50, 100}}) == "(no error)");
  for (const auto& wrong : {list{{0, 101}}, list{{5, 5}}, list{{7, 6}}, list{{0, 20}, {10, 30}},
                            list{{20, 30}, {0, 10}}, list{{-1, 3}}, list{{1}}, list{{1, 2, 3}}})
    BOOST_TEST(contains(error_with("remaining", wrong), "checkpoint.json: remaining: expected"));
}

BOOST_AUTO_TEST_CASE(hostile_bytes) {
  BOOST_TEST(contains(error_of([] { parse(""); }), "checkpoint.json:1:1: not valid JSON"));
  BOOST_TEST(contains(error_of([] { parse("[]"); }), "expected an object"));
  BOOST_TEST(
    contains(error_of([] { parse(std::string(100'000, '[')); }), "nested more than 64 deep"));
  const auto good = to_json(example());
  // Any truncated text must give an error. Only a text that lacks the final newline is still valid
  // JSON.
  BOOST_TEST(survive_hostile_variants(bytes_of(good),
                                      [](auto bytes) { parse_manifest(bytes, "checkpoint.json"); })
             == 1U);
}

BOOST_AUTO_TEST_CASE(the_best_evaluation) {
  best_evaluation x;
  BOOST_TEST(x.add(2, 10, 1, 0.1));
  BOOST_TEST(x.add(1.5, 20, 2, 0.1));
  // A loss of 1.45 is better than 1.5, but by less than the required difference of 0.1.
  BOOST_TEST(!x.add(1.45, 30, 3, 0.1));
  BOOST_TEST(!x.add(1.6, 40, 4, 0.1));
  BOOST_TEST((x == best_evaluation{1.5, 20, 2, 2, 40}));
  // A run that continues from a checkpoint evaluates this version a second time. The version counts
  // once.
  BOOST_TEST(!x.add(1.6, 40, 4, 0.1));
  BOOST_TEST(x.since == 2U);
  BOOST_TEST(x.add(1.3, 50, 5, 0.1));
  BOOST_TEST(x.since == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
