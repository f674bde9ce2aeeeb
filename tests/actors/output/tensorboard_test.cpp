#include "actors/output/tensorboard.hpp"

#include "tests/support/input_errors.hpp"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

using namespace troupe;
using namespace troupe::test;

// Decodes event files with a second schema, which follows TensorFlow's documentation. The schema
// that wrote the files is not used.

BOOST_AUTO_TEST_SUITE(tensorboard)

namespace {

using fields = google::protobuf::UnknownFieldSet;

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

template <class T>
T read(const std::string& bytes, std::size_t at) {
  T result;
  BOOST_REQUIRE(at + sizeof result <= bytes.size());
  std::memcpy(&result, bytes.data() + at, sizeof result);
  return result;
}

void require_crc(const std::string& bytes, std::size_t begin, std::size_t size) {
  const auto masked = read<std::uint32_t>(bytes, begin + size);
  const auto crc = crc32c(std::string_view{bytes}.substr(begin, size));
  BOOST_REQUIRE(masked == ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = read<std::uint64_t>(bytes, at);
    require_crc(bytes, at, 8);
    BOOST_REQUIRE(at + 16 + length <= bytes.size());
    require_crc(bytes, at + 12, length);
    result.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  return result;
}

/// Decodes a message. The result is on the heap, because it cannot be copied or moved.
std::unique_ptr<const fields> parse(const std::string& bytes) {
  auto result = std::make_unique<fields>();
  BOOST_REQUIRE(result->ParseFromString(bytes));
  return result;
}

const google::protobuf::UnknownField* find(const fields& x, int number) {
  for (int i = 0; i < x.field_count(); ++i)
    if (x.field(i).number() == number)
      return &x.field(i);
  return nullptr;
}

double number(const fields& x, int field) {
  const auto* found = find(x, field);
  BOOST_REQUIRE(found);
  return std::bit_cast<double>(found->fixed64());
}

std::vector<double> doubles(const fields& x, int field) {
  const auto* found = find(x, field);
  BOOST_REQUIRE(found);
  std::vector<double> result;
  for (std::size_t at = 0; at < found->length_delimited().size(); at += 8)
    result.push_back(read<double>(found->length_delimited(), at));
  return result;
}

struct histogram {
  double min, max, num;
  std::vector<double> limits, counts;
};

struct event {
  double time = 0;
  std::uint64_t step = 0;
  std::string version;
  bool start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, histogram> histograms;
};

event decode(const std::string& record) {
  const auto whole = parse(record);
  const auto& x = *whole;
  event result;
  result.time = number(x, 1);
  if (const auto* step = find(x, 2))
    result.step = step->varint();
  if (const auto* version = find(x, 3))
    result.version = version->length_delimited();
  if (const auto* session = find(x, 7))
    result.start = find(*parse(session->length_delimited()), 1)->varint() == 1;
  const auto* summary = find(x, 5);
  const auto values = parse(summary ? summary->length_delimited() : "");
  for (int i = 0; i < values->field_count(); ++i) {
    BOOST_REQUIRE(values->field(i).number() == 1);
    const auto parsed = parse(values->field(i).length_delimited());
    const auto& value = *parsed;
    const auto tag = find(value, 1)->length_delimited();
    if (const auto* simple = find(value, 2))
      result.scalars[tag] = std::bit_cast<float>(simple->fixed32());
    if (const auto* histo = find(value, 5)) {
      const auto h = parse(histo->length_delimited());
      result.histograms[tag] = {number(*h, 1), number(*h, 2), number(*h, 3), doubles(*h, 6),
                                doubles(*h, 7)};
    }
  }
  return result;
}

std::vector<event> events(const std::string& bytes) {
  std::vector<event> result;
  for (auto& x : records(bytes))
    result.push_back(decode(x));
  return result;
}

event only(const std::string& bytes) {
  const auto all = events(bytes);
  BOOST_REQUIRE(all.size() == 1u);
  return all[0];
}

run_progress progress() {
  run_progress x;
  x.epoch = 2;
  x.epochs = 10;
  x.samples = 500;
  x.epoch_samples = 8000;
  x.train_loss = 0.25;
  x.samples_per_second = 1234;
  x.updates = 17;
  x.staleness_mean = 1.5;
  x.learning_rate = 0.5;
  task_status worker;
  worker.task = {job_kind::worker, 1};
  worker.samples_per_second = 600;
  worker.computing = 3;
  worker.waiting_for_lease = 0.1;
  worker.waiting_for_data = 0.2;
  worker.waiting_for_weights = 0.3;
  worker.waiting_for_update = 0.4;
  task_status shard;
  shard.task = {job_kind::ps, 0};
  x.tasks = {worker, shard};
  return x;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_checksum_of_this_test) {
  BOOST_TEST(crc32c("123456789") == 0xe3069283U);
}

BOOST_AUTO_TEST_CASE(records_are_framed) {
  for (const std::size_t size : {0u, 1u, 7u, 1000u}) {
    const std::string data(size, 'x');
    const auto framed = tf_record(data);
    BOOST_TEST(framed.size() == size + 16);
    BOOST_REQUIRE(records(framed).size() == 1u);
    BOOST_TEST(records(framed)[0] == data);
  }
}

BOOST_AUTO_TEST_CASE(a_file_begins_with_its_version) {
  const auto all = events(tensorboard_log::header(1000.5, 42));
  BOOST_REQUIRE(all.size() == 2u);
  BOOST_TEST(all[0].version == "brain.Event:2");
  BOOST_TEST(all[0].time == 1000.5);
  BOOST_TEST(all[1].start);
  BOOST_TEST(all[1].step == 42u);
}

BOOST_AUTO_TEST_CASE(progress_becomes_scalars) {
  tensorboard_log log{8000};
  const auto x = only(log.add(progress(), 7.25));
  BOOST_TEST(x.time == 7.25);
  BOOST_TEST(x.step == 8500u);
  const std::map<std::string, float> expected{
    {"learning_rate/schedule", 0.5F},   {"loss/train", 0.25F},
    {"samples_per_second/all", 1234.F}, {"samples_per_second/worker/1", 600.F},
    {"staleness/mean", 1.5F},           {"updates_per_second/all", 0.F},
    {"waiting_share/worker/1", 0.25F}};
  BOOST_TEST((x.scalars == expected));
  BOOST_TEST(x.histograms.empty());
  auto paced = progress();
  paced.pacing = pacing_status{3, 0.5, 0.25, 2, 0, 11};
  paced.quarantined = 4;
  paced.tasks[0].bytes_sent_per_second = 1e6;
  const auto more = only(log.add(paced, 7.5)).scalars;
  BOOST_TEST(more.at("staleness/running") == 3.F);
  BOOST_TEST(more.at("gradient/norm_running") == 0.5F);
  BOOST_TEST(more.at("gradient/limited") == 11.F);
  BOOST_TEST(more.at("gradient/quarantined") == 4.F);
  BOOST_TEST(more.at("learning_rate/damping") == 0.25F);
  BOOST_TEST(std::ranges::any_of(
    more, [](auto& x) { return x.first.ends_with("/sent") && x.second == 1e6F; }));
  auto sharded = progress();
  auto& shard = sharded.tasks.emplace_back();
  shard.task = {job_kind::ps, 3};
  shard.steps = 7;
  shard.steps_per_second = 3.5;
  BOOST_TEST(only(log.add(sharded, 7.75)).scalars.at("updates_per_second/ps/3") == 3.5F);
  auto clipped = progress();
  clipped.gradient_norm = 0.75;
  BOOST_TEST(only(log.add(clipped, 8)).scalars.at("gradient/norm") == 0.75F);
}

BOOST_AUTO_TEST_CASE(waiting_is_told_since_the_last_report) {
  tensorboard_log log{8000};
  auto p = progress();
  log.add(p, 1);
  p.tasks[0].computing += 1;
  p.tasks[0].waiting_for_data += 3;
  BOOST_TEST(only(log.add(p, 2)).scalars.at("waiting_share/worker/1") == 0.75F);
  BOOST_TEST(!only(log.add(p, 3)).scalars.contains("waiting_share/worker/1"));
  // A worker that has joined again counts its seconds from 0. So the share of its time that it
  // waits is not known yet.
  p.tasks[0].computing = 0;
  BOOST_TEST(!only(log.add(p, 4)).scalars.contains("waiting_share/worker/1"));
}

BOOST_AUTO_TEST_CASE(steps_never_fall) {
  tensorboard_log log{8000};
  auto p = progress();
  log.add(p, 1);
  p.samples = 400;
  BOOST_TEST(only(log.add(p, 2)).step == 8500u);
}

BOOST_AUTO_TEST_CASE(an_epoch) {
  tensorboard_log log{8000};
  epoch_report e;
  e.epoch = 3;
  e.train_loss = 0.5;
  e.test_loss = std::numeric_limits<double>::quiet_NaN();
  const std::map<std::string, float> without{{"loss/train_epoch", 0.5F}};
  BOOST_TEST((only(log.add(e, 1)).scalars == without));
  e.test_loss = 0.75;
  e.test_accuracy = 0.875;
  const auto x = only(log.add(e, 1));
  BOOST_TEST(x.step == 24000u);
  const std::map<std::string, float> expected{
    {"loss/train_epoch", 0.5F}, {"loss/test", 0.75F}, {"accuracy/test", 0.875F}};
  BOOST_TEST((x.scalars == expected));
}

BOOST_AUTO_TEST_CASE(an_evaluation_in_the_midst_of_an_epoch) {
  tensorboard_log log{8000};
  epoch_report e{2, 3, 1, 100, 0.5, 0.75, 0.875, {}};
  e.step = 40;
  e.epochs_trained = 1.5;
  e.validation = true;
  const auto x = only(log.add(e, 1));
  BOOST_TEST(x.step == 12000u);
  const std::map<std::string, float> expected{{"loss/validation", 0.75F},
                                              {"accuracy/validation", 0.875F}};
  BOOST_TEST((x.scalars == expected));
}

BOOST_AUTO_TEST_CASE(staleness_becomes_a_histogram) {
  tensorboard_log log{8000};
  auto p = progress();
  p.staleness = {};
  p.staleness[1] = 10;
  p.staleness[5] = 4; // staleness 6 and 7
  const auto first = only(log.add(p, 1)).histograms.at("staleness/distribution");
  BOOST_TEST(first.min == 0.5);
  BOOST_TEST(first.max == 7.5);
  BOOST_TEST(first.num == 14.0);
  BOOST_TEST((first.limits == std::vector<double>{1.5, 2.5, 3.5, 5.5, 7.5}));
  BOOST_TEST((first.counts == std::vector<double>{10, 0, 0, 0, 4}));
  // Each gradient is counted in one histogram only. Gradients that no earlier histogram contains
  // are in the last one, at the end of the run.
  BOOST_TEST(only(log.add(p, 2)).histograms.empty());
  run_summary end;
  end.samples = 80'000;
  end.staleness = p.staleness;
  BOOST_TEST(log.add(end, 3).empty());
  end.staleness[15] = 2; // staleness 256 and more
  const auto last = only(log.add(end, 3));
  BOOST_TEST(last.step == 80'000u);
  const auto rest = last.histograms.at("staleness/distribution");
  BOOST_TEST((rest.counts == std::vector<double>{2}));
  BOOST_TEST(rest.min == 255.5);
  BOOST_TEST(rest.max == 511.0);
}

BOOST_AUTO_TEST_CASE(a_run_that_goes_on_counts_from_there) {
  tensorboard_log log{8000};
  log.begin_at(12'000);
  run_summary end;
  end.samples = 4'000;
  end.staleness[0] = 1;
  BOOST_TEST(only(log.add(end, 1)).step == 16'000u);
}

BOOST_AUTO_TEST_CASE(nothing_is_told_before_training) {
  tensorboard_log log{8000};
  run_progress p;
  p.epoch = 1;
  BOOST_TEST(log.add(p, 1).empty());
  BOOST_TEST(log.add(run_summary{}, 1).empty());
}

BOOST_AUTO_TEST_SUITE_END()
