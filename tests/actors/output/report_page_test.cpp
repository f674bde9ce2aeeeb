#include "actors/output/report_page.hpp"

#include "tests/support/input_errors.hpp"

#include <cctype>
#include <limits>
#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(report_page)

namespace {

/// The first HTML element that is not closed, or is closed without being opened. Empty if the page
/// is well-formed.
std::string misplaced_element(const std::string& page) {
  std::vector<std::string> open;
  for (auto i = page.find('<'); i != page.npos; i = page.find('<', i + 1)) {
    const auto end = page.find('>', i);
    if (end == page.npos)
      return page.substr(i, 20);
    if (page[i + 1] == '!' || page[end - 1] == '/')
      continue;
    const bool closes = page[i + 1] == '/';
    auto last = i + 1 + (closes ? 1 : 0);
    const auto first = last;
    while (std::isalnum(static_cast<unsigned char>(page[last])))
      ++last;
    const auto name = page.substr(first, last - first);
    if (!closes)
      open.push_back(name);
    else if (open.empty() || open.back() != name)
      return name;
    else
      open.pop_back();
  }
  return open.empty() ? "" : open.back();
}

task_status worker(std::uint32_t index) {
  task_status x;
  x.task = {job_kind::worker, index};
  x.steps = 100;
  x.samples = 3200;
  x.samples_per_second = 1600;
  x.computing = 3;
  x.exchanging_while_computing = 1;
  x.waiting_for_weights = 1;
  x.activity = "computes";
  return x;
}

report_data full() {
  report_data x;
  x.name = "digits";
  x.version = "0.1.0";
  x.origin.host = "node7";
  x.job = "model { layer { } }";
  x.job_hash = "0123456789abcdef";
  for (std::uint32_t i = 1; i <= 20; ++i) {
    run_progress p;
    p.epoch = 1 + i / 11;
    p.epochs = 2;
    p.samples = 100 * (i % 11);
    p.epoch_samples = 1000;
    p.seconds = i;
    p.train_loss = 1.0 / i;
    p.samples_per_second = 100;
    x.history.add(p);
  }
  for (std::uint32_t i = 1; i <= 2; ++i)
    x.history.add(epoch_report{i, 2, 10.0 * i, 100, 1.0 / i, 0.5 / i, 0.9, {}});
  x.history.add(dated_notice{61, "worker/1 is gone; the others train its samples"});
  x.summary.protocol = "async_ps";
  x.summary.decided_by = "parameter server";
  x.summary.workers = 2;
  x.summary.seconds = 20;
  x.summary.samples = 2000;
  x.summary.samples_per_second = 100;
  x.summary.train_loss = 0.5;
  x.summary.test_loss = 0.25;
  x.summary.test_accuracy = 0.9;
  x.summary.counted = true;
  x.summary.applied = 12'345;
  x.summary.staleness[0] = 7;
  x.summary.staleness[4] = 3;
  x.summary.tasks = {worker(0), worker(1)};
  x.summary.weights_sha256 = "feed";
  return x;
}

} // namespace

BOOST_AUTO_TEST_CASE(everything_is_there) {
  const auto page = render_report(full());
  for (const char* text : {"<title>digits</title>",
                           "done",
                           "90.00 %",
                           "async_ps, 2 workers, 2 of 2 epochs",
                           "node7",
                           ">Loss<",
                           ">Test accuracy, %<",
                           ">Samples per second<",
                           ">Gradients by staleness<",
                           ">How each worker spent its time<",
                           "worker/1",
                           "75 % of 4.0 s",
                           "12,345",
                           "<b>50 %</b><span>communication hidden by computing</span>",
                           "Every gradient is accounted for",
                           "<time>1:01</time>worker/1 is gone",
                           "model { layer { } }",
                           "0123456789abcdef",
                           "feed",
                           "4-5"})
    BOOST_TEST(contains(page, text));
  BOOST_TEST(misplaced_element(page) == "");
}

BOOST_AUTO_TEST_CASE(validation_and_steps) {
  auto x = full();
  x.history = {};
  for (std::uint32_t i = 1; i <= 2; ++i) {
    epoch_report e{i, 2, 10.0 * i, 100, 1.0 / i, 0.5 / i, 0.9, {}};
    e.validation = true;
    x.history.add(e);
    e.step = 5 + 10 * (i - 1);
    e.epochs_trained = i - 0.5;
    x.history.add(e);
  }
  x.summary.validation_loss = 0.125;
  x.summary.validation_accuracy = 0.625;
  BOOST_TEST(x.history.epochs().size() == 2u);
  std::vector<double> when;
  for (auto& e : x.history.evaluations())
    when.push_back(e.when());
  BOOST_TEST(when == (std::vector<double>{0.5, 1, 1.5, 2}));
  const auto page = render_report(x);
  for (const char* text : {"2 of 2 epochs", ">Validation accuracy, %<", "validation loss",
                           "62.50 %", "90.00 %", ">test loss<", "0.125"})
    BOOST_TEST(contains(page, text));
  BOOST_TEST(misplaced_element(page) == "");
}

BOOST_AUTO_TEST_CASE(nothing_is_loaded_and_nothing_runs) {
  const auto page = render_report(full());
  for (const char* text :
       {"<script", "http:", "https:", "src=", "href=", "url(", "@import", "<link"})
    BOOST_TEST(page.find(text) == page.npos, text);
}

BOOST_AUTO_TEST_CASE(texts_of_users_are_escaped) {
  const std::string hostile = "<script>alert(\"1\")</script>'&\x1b[2J\xff";
  auto x = full();
  x.name = x.job = x.origin.host = x.summary.failure = hostile;
  x.summary.tasks[0].activity = hostile;
  x.summary.protocol = x.summary.weights_sha256 = x.job_hash = x.version = hostile;
  x.history.add(dated_notice{1, hostile});
  const auto page = render_report(x);
  BOOST_TEST(page.find("<script") == page.npos);
  BOOST_TEST(page.find('\x1b') == page.npos);
  BOOST_TEST(page.find('\xff') == page.npos);
  BOOST_TEST(page.find("\"1\"") == page.npos);
  BOOST_TEST(misplaced_element(page) == "");
}

BOOST_AUTO_TEST_CASE(runs_that_did_not_end_well) {
  auto x = full();
  x.summary.failure = "worker/1 is gone";
  auto page = render_report(x);
  BOOST_TEST(contains(page, "state failed"));
  BOOST_TEST(contains(page, "<p class=\"failure\">worker/1 is gone</p>"));
  BOOST_TEST(page.find("accounted for") == page.npos);
  x.summary.interrupted = true;
  page = render_report(x);
  BOOST_TEST(contains(page, "state stopped"));
}

BOOST_AUTO_TEST_CASE(a_run_that_never_began) {
  report_data x;
  x.summary.failure = "not all tasks joined";
  const auto page = render_report(x);
  BOOST_TEST(contains(page, "not all tasks joined"));
  BOOST_TEST(contains(page, "A run of troupe"));
  BOOST_TEST(page.find("<svg") == page.npos);
  BOOST_TEST(page.find("Ledger") == page.npos);
  BOOST_TEST(misplaced_element(page) == "");
}

BOOST_AUTO_TEST_CASE(short_runs_show_their_epochs) {
  report_data x;
  x.history.add(epoch_report{1, 2, 0.1, 100, 0.5, 0.4, std::nullopt, {}});
  x.summary.samples = 100;
  const auto page = render_report(x);
  BOOST_TEST(contains(page, ">Loss<"));
  BOOST_TEST(contains(page, ">Samples per second<"));
  BOOST_TEST(page.find("Test accuracy, %") == page.npos, "there is none for regression");
}

BOOST_AUTO_TEST_CASE(slow_runs) {
  auto x = full();
  x.summary.samples_per_second = 0.42;
  x.summary.tasks[0].steps_per_second = 45.7;
  const auto page = render_report(x);
  BOOST_TEST(contains(page, "<b>0.4</b><span>samples/s</span>"));
  BOOST_TEST(contains(page, "<td>46</td>"));
}

BOOST_AUTO_TEST_CASE(several_views) {
  auto x = full();
  BOOST_TEST(!contains(render_report(x), "Tasks joined"));
  x.summary.views = 3;
  BOOST_TEST(contains(render_report(x),
                      "Tasks joined or were lost 2 times. This page describes the "
                      "time since then."));
}

BOOST_AUTO_TEST_CASE(a_run_that_has_not_ended) {
  auto x = full();
  x.name = "<name>";
  const auto page = render_unfinished(x);
  BOOST_TEST(contains(page, "&lt;name&gt;"));
  BOOST_TEST(contains(page, "This run has not ended"));
  BOOST_TEST(misplaced_element(page) == "");
}

BOOST_AUTO_TEST_CASE(losses_that_are_not_finite) {
  auto x = full();
  x.summary.test_loss = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(contains(render_report(x), "<b>unknown</b><span>test loss</span>"));
  x.history.add(epoch_report{3,
                             3,
                             30,
                             100,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(),
                             0.1,
                             {}});
  const auto page = render_report(x);
  BOOST_TEST(contains(page, "not finite"));
  BOOST_TEST(page.find("nan") == page.npos);
  BOOST_TEST(page.find("inf") == page.npos);
}

BOOST_AUTO_TEST_CASE(pages_stay_small) {
  auto x = full();
  x.summary.tasks.clear();
  for (std::uint32_t i = 0; i < 5000; ++i)
    x.summary.tasks.push_back(worker(i));
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    x.history.add(epoch_report{i, 100'000, 1.0 * i, 100, 1, 1, 0.5, {}});
    x.history.add(dated_notice{1.0 * i, "something happened again"});
  }
  const auto page = render_report(x);
  BOOST_TEST(page.size() < 1'000'000u);
  BOOST_TEST(contains(page, "... and 4744 more"));
}

BOOST_AUTO_TEST_SUITE_END()
