// A worker reads each batch on several threads (data.read_threads).

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(read_threads)

namespace {

/// A data set that remembers which threads read it, and how many records each call of read() asked
/// for.
class watched : public dataset {
public:
  /// @param broken the number of a record that cannot be read
  explicit watched(std::shared_ptr<const dataset> source, std::uint64_t broken = ~std::uint64_t{0})
    : source_(std::move(source)), broken_(broken) {}

  std::uint64_t size() const noexcept override { return source_->size(); }
  const record_shape& record() const noexcept override { return source_->record(); }
  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    return source_->read_labels(records, labels);
  }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    {
      const std::lock_guard guard{mutex_};
      threads_.insert(std::this_thread::get_id());
      sizes_.insert(records.size());
    }
    for (const auto x : records)
      if (x == broken_)
        throw std::runtime_error("record " + std::to_string(x) + " is broken");
    source_->read(records, features, labels);
  }

  std::size_t threads() const { return threads_.size(); }
  std::set<std::size_t> sizes() const { return sizes_; }

private:
  std::shared_ptr<const dataset> source_;
  std::uint64_t broken_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
  mutable std::set<std::size_t> sizes_;
};

/// 50 records in batches of 8. The last batch has 2 records, so some threads have no part of it.
proto::Job job_with(std::size_t threads, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 50 test: 10}",
                                   "data.batch=8",
                                   "epochs=2",
                                   "model.layer[0].dense.units=8",
                                   "protocol=RING",
                                   "data.read_threads=" + std::to_string(threads)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

run_summary train(const proto::Job& job, std::shared_ptr<const dataset> records) {
  auto options = simulated(job, 1, 0);
  options.data.train = std::move(records);
  return simulation{options}.run().summary;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_weights_are_the_same) {
  const std::vector<std::string> augmented{"data.augment={flip: true crop_padding: 3}"};
  for (const auto& more : {std::vector<std::string>{}, augmented}) {
    const auto data = build_data(job_with(1, more)).train;
    const auto one = train(job_with(1, more), data);
    BOOST_TEST(one.failure == "");
    for (const std::size_t threads : {2, 3, 16}) {
      const auto several = train(job_with(threads, more), data);
      BOOST_TEST(several.failure == "");
      BOOST_TEST(several.weights_sha256 == one.weights_sha256);
    }
  }
}

// Features are tokens here, and each record has several labels.
BOOST_AUTO_TEST_CASE(texts) {
  const temporary_directory folder;
  std::ofstream{folder / "text"} << std::string(60, 'a') + "bbaacabcab" + std::string(90, 'c');
  const auto job = [&](const std::string& threads) {
    return example_job("shakespeare_gru",
                       {"data.text={path: \"" + (folder / "text").string() + "\" window: 8}",
                        "data.batch=5", "epochs=2", "protocol=RING", "model.layer[1].gru.hidden=6",
                        "model.layer[2].dense.units=3", "data.read_threads=" + threads});
  };
  const auto data = build_data(job("1")).train;
  const auto one = train(job("1"), data);
  BOOST_TEST(one.failure == "");
  BOOST_TEST(train(job("3"), data).weights_sha256 == one.weights_sha256);
}

BOOST_AUTO_TEST_CASE(each_thread_reads_a_part) {
  const auto data = build_data(job_with(1)).train;
  const auto one = std::make_shared<watched>(data);
  BOOST_TEST(train(job_with(1), one).failure == "");
  BOOST_TEST(one->sizes().contains(8));
  const auto three = std::make_shared<watched>(data);
  BOOST_TEST(train(job_with(3), three).failure == "");
  BOOST_TEST(three->threads() == one->threads() + 2);
  BOOST_TEST(three->sizes().contains(3));
  BOOST_TEST(!three->sizes().contains(0));
}

BOOST_AUTO_TEST_CASE(an_exception_on_one_thread_ends_the_run) {
  const auto data = build_data(job_with(1)).train;
  for (const std::uint64_t record : {0, 21, 49}) {
    const auto run = train(job_with(4), std::make_shared<watched>(data, record));
    BOOST_TEST(run.failure.find("record " + std::to_string(record) + " is broken")
                 != std::string::npos,
               run.failure);
  }
}

BOOST_AUTO_TEST_SUITE_END()
