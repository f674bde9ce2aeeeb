// Writes checkpoints to disk and to memory. What is read back equals what was written, and a
// checkpoint that does not fit the job is refused.

#include "actors/checkpoint/own_checkpoint.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/replica_state.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(checkpoint)

namespace {

const data_shape digits{{.dims = {1, 28, 28}, .label_width = 10}, 100};

std::shared_ptr<const job_context> context_of(const proto::Job& job,
                                              const data_shape& data = digits) {
  return make_job_context(job, data);
}

/// A checkpoint whose values show where they belong: a value is the step plus 0.25 for each slot
/// before its own. Slot 0 is the weights, and the other slots are optimizer state.
checkpoint state_at(const job_context& context, std::uint64_t step, std::uint32_t epoch = 1) {
  checkpoint x;
  x.manifest.step = step;
  x.manifest.cut = {epoch, {{10, 100}}};
  x.manifest.samples = 100 * epoch + 10;
  x.manifest.view = 1;
  x.manifest.data = context.data;
  x.manifest.job = job_text(context.job);
  x.manifest.job_hash = context.hash;
  for (std::size_t slot = 0; slot <= context.rule.slots(); ++slot) {
    x.slots.push_back(payload::floats(context.parameters().size()));
    std::size_t i = 0;
    for (auto& value : x.slots.back().as_mutable_floats())
      value = static_cast<float>(step) + 0.25F * static_cast<float>(slot)
        + static_cast<float>(i++) / 65'536;
  }
  return x;
}

void write(troupe::storage& where, const job_context& context, std::uint64_t step,
           const std::filesystem::path& folder = "out/checkpoints") {
  where.write_directory(folder / checkpoint_name(step),
                        encode_checkpoint(context, state_at(context, step)));
}

std::uint64_t step_of(const resume_choice& x) {
  return x.from ? x.from->manifest.step : 0;
}

/// The notices to the operator, one per line.
std::string text_of(const resume_choice& x) {
  std::string result;
  for (auto& text : x.notices)
    result += text + '\n';
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(there_and_back_with_every_optimizer) {
  const temporary_directory directory;
  disk_storage disk;
  memory_storage memory;
  for (const auto kind : {proto::SGD, proto::MOMENTUM, proto::ADAM})
    for (troupe::storage* where :
         {static_cast<troupe::storage*>(&disk), static_cast<troupe::storage*>(&memory)}) {
      auto job = digits_job();
      job.mutable_optimizer()->set_kind(kind);
      const auto context = context_of(job);
      const auto expected = state_at(*context, 50);
      BOOST_TEST(expected.slots.size()
                 == (kind == proto::SGD          ? 1U
                       : kind == proto::MOMENTUM ? 2U
                                                 : 3U));
      write(*where, *context, 50, directory.path());
      const auto found =
        fit_checkpoint(read_checkpoint(*where, directory / "step-00000050"), *context);
      BOOST_TEST((found.manifest.cut == expected.manifest.cut));
      BOOST_TEST_REQUIRE(found.slots.size() == expected.slots.size());
      for (std::size_t i = 0; i < found.slots.size(); ++i)
        BOOST_TEST(same_bits(found.slots[i].as_floats(), expected.slots[i].as_floats()));
    }
}

// Protocols keep more state than weights and optimizer: some per worker, some for all workers. A
// run reads only the state that its own protocol uses.
BOOST_AUTO_TEST_CASE(further_state_there_and_back) {
  auto job = digits_job();
  job.set_protocol(proto::LOCAL_SGD);
  job.mutable_local_sgd()->mutable_outer();
  const auto context = context_of(job);
  const std::vector<std::string> alone{"momentum_buffer", "outer_momentum"};
  BOOST_TEST((state_names(*context, 1) == alone));
  auto names = alone;
  for (const auto* name : {"worker_0/momentum_buffer", "worker_1/momentum_buffer"})
    names.emplace_back(name);
  BOOST_TEST((state_names(*context, 2) == names));
  auto written = state_at(*context, 50);
  while (written.slots.size() < 1 + names.size())
    written.slots.push_back(state_at(*context, 50 + written.slots.size()).slots[0]);
  memory_storage memory;
  const std::filesystem::path where = "out/checkpoints/step-00000050";
  memory.write_directory(where, encode_checkpoint(*context, written));
  const auto check = [&](const std::vector<std::size_t>& expected) {
    const auto found = fit_checkpoint(read_checkpoint(memory, where), *context_of(job));
    BOOST_TEST_REQUIRE(found.slots.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      BOOST_TEST(same_bits(found.slots[i].as_floats(), written.slots[expected[i]].as_floats()), i);
  };
  check({0, 1, 2, 3, 4});
  job.mutable_local_sgd()->clear_outer();
  check({0, 1, 3, 4});
  job.clear_local_sgd();
  job.set_protocol(proto::RING);
  check({0, 1});
  // The checkpoint of a run without LOCAL_SGD has no outer momentum. Then the momentum begins at 0.
  job = digits_job();
  write(memory, *context_of(job), 50, "plain");
  job.set_protocol(proto::LOCAL_SGD);
  job.mutable_local_sgd()->mutable_outer();
  const auto plain =
    fit_checkpoint(read_checkpoint(memory, "plain/step-00000050"), *context_of(job));
  BOOST_TEST_REQUIRE(plain.slots.size() == 3U);
  BOOST_TEST(std::ranges::count(plain.slots[2].as_floats(), 0.0F)
             == static_cast<std::ptrdiff_t>(context->parameters().size()));
}

// The tensor "momentum_buffer/head/fc.weight" is not the parameter "fc.weight" of a vector
// "momentum_buffer/head".
BOOST_AUTO_TEST_CASE(layers_whose_names_end_alike) {
  memory_storage memory;
  auto job = digits_job();
  job.mutable_model()->mutable_layer(0)->set_name("fc");
  job.mutable_model()->mutable_layer(1)->set_name("head/fc");
  const auto context = context_of(job);
  write(memory, *context, 50);
  const auto found =
    fit_checkpoint(read_checkpoint(memory, "out/checkpoints/step-00000050"), *context);
  BOOST_TEST(found.slots.size() == 1 + context->rule.slots());
}

BOOST_AUTO_TEST_CASE(every_damaged_file_is_named) {
  const auto context = context_of(digits_job());
  const std::filesystem::path where = "out/checkpoints/step-00000050";
  for (const auto* file : {"checkpoint.json", "weights.safetensors", "optimizer.safetensors"}) {
    const auto refused = [&](auto change, const std::string& says) {
      memory_storage memory;
      write(memory, *context, 50);
      auto bytes = bytes_of(memory.contents(where / file));
      change(bytes);
      memory.replace(where / file, bytes);
      const auto text = error_of([&] { read_checkpoint(memory, where); });
      BOOST_TEST(contains(text, (where / file).string()));
      BOOST_TEST(contains(text, says));
    };
    const bool manifest = file == std::string_view{"checkpoint.json"};
    refused([](auto& x) { x.resize(x.size() / 2); }, manifest ? "not valid JSON" : "bytes long");
    refused([](auto& x) { x.clear(); }, manifest ? "not valid JSON" : "0 bytes long");
    if (!manifest)
      refused([](auto& x) { x.back() ^= std::byte{1}; }, "its hash is not");
  }
  memory_storage memory;
  BOOST_TEST(contains(error_of([&] { read_checkpoint(memory, where); }),
                      (where / "checkpoint.json").string()));
}

BOOST_AUTO_TEST_CASE(another_model_lists_all_tensors_that_differ) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  write(memory, *context, 50);
  const auto files = read_checkpoint(memory, "out/checkpoints/step-00000050");
  auto job = digits_job();
  job.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(7);
  job.mutable_model()->mutable_layer(1)->set_name("other");
  const auto text = error_of([&] { fit_checkpoint(files, *context_of(job)); });
  for (const auto* part :
       {"weights.safetensors", "differs: dense_1.weight", "differs: dense_1.bias",
        "missing: other.weight", "missing: other.bias", "extra: head.weight", "extra: head.bias"})
    BOOST_TEST(contains(text, part));
}

BOOST_AUTO_TEST_CASE(what_a_run_cannot_go_on_from) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  write(memory, *context, 50);
  const auto files = read_checkpoint(memory, "out/checkpoints/step-00000050");
  const auto error_for = [&](auto change, const data_shape& data = digits) {
    auto job = digits_job();
    change(job);
    return error_of([&] { fit_checkpoint(files, *context_of(job, data)); });
  };
  BOOST_TEST(contains(error_for([](auto& x) { x.mutable_optimizer()->set_kind(proto::NESTEROV); }),
                      "optimizer.kind MOMENTUM, but the job has NESTEROV"));
  BOOST_TEST(contains(error_for([](auto& x) { x.set_seed(2); }), "seed 1, but the job has 2"));
  BOOST_TEST(contains(error_for([](auto& x) { x.set_epochs(1); }), "epoch 2, but the job has 1"));
  BOOST_TEST(
    contains(error_for([](auto&) {}, {{.dims = {1, 28, 28}, .label_width = 10}, 101}),
             "100 training records of (1, 28, 28) numbers and 10 classes; the job has 101 "));
  BOOST_TEST(error_for([](auto& x) {
               x.set_epochs(7);
               x.set_protocol(proto::RING);
               x.mutable_learning_rate()->set_base(0.3F);
               x.mutable_optimizer()->set_momentum(0.1F);
               x.set_output("elsewhere");
             })
             == "(no error)");
}

BOOST_AUTO_TEST_CASE(where_a_run_begins) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  const auto choose = [&](const std::optional<std::string>& wanted,
                          const std::filesystem::path& output = "out") {
    return choose_checkpoint(memory, output, wanted, *context);
  };
  BOOST_TEST(step_of(choose(std::nullopt)) == 0U);
  BOOST_TEST(text_of(choose(std::nullopt)).empty());
  BOOST_TEST(step_of(choose("")) == 0U);
  BOOST_TEST(contains(text_of(choose("")), "no checkpoint in out/checkpoints yet"));
  BOOST_TEST(contains(error_of([&] { choose("", ""); }), "no output directory"));
  BOOST_TEST(contains(error_of([&] { choose("nowhere"); }), "nowhere/checkpoint.json"));

  for (const std::uint64_t step : {50, 100, 150})
    write(memory, *context, step);
  BOOST_TEST(
    contains(error_of([&] { choose(std::nullopt); }), "out/checkpoints already has checkpoints"));
  BOOST_TEST(step_of(choose("")) == 150U);
  BOOST_TEST(contains(text_of(choose("")), "step 150, epoch 2 of 3, 90 samples of it left"));
  // The path may name an output directory, a folder of checkpoints, or a single checkpoint. This
  // run writes to a different output directory than the run that it continues.
  for (const auto* name : {"out", "out/checkpoints", "out/checkpoints/step-00000150"})
    BOOST_TEST(step_of(choose(name, "new")) == 150U, name);
  BOOST_TEST(step_of(choose("out/checkpoints/step-00000050", "new")) == 50U);
  BOOST_TEST(step_of(choose("out/checkpoints/step-00000050", "")) == 50U);
  BOOST_TEST(contains(error_of([&] { choose("out/checkpoints/step-00000050"); }),
                      "newer checkpoint, out/checkpoints/step-00000150"));
}

BOOST_AUTO_TEST_CASE(damaged_ones_are_skipped_unless_named) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  for (const std::uint64_t step : {50, 100, 150})
    write(memory, *context, step);
  memory.replace("out/checkpoints/step-00000150/weights.safetensors", {});
  memory.replace("out/checkpoints/step-00000100/checkpoint.json", {});
  const auto found = choose_checkpoint(memory, "out", "", *context);
  BOOST_TEST(step_of(found) == 50U);
  BOOST_TEST(contains(text_of(found), "out/checkpoints/step-00000150/weights.safetensors"));
  BOOST_TEST(contains(text_of(found), "out/checkpoints/step-00000100/checkpoint.json"));
  // Checkpoint 150 is damaged. The run can still start from checkpoint 50, if its path is given.
  BOOST_TEST(step_of(choose_checkpoint(memory, "out", "out/checkpoints/step-00000050", *context))
             == 50U);
  BOOST_TEST(contains(
    error_of([&] { choose_checkpoint(memory, "new", "out/checkpoints/step-00000150", *context); }),
    "weights.safetensors: damaged"));
  memory.replace("out/checkpoints/step-00000050/checkpoint.json", {});
  BOOST_TEST(contains(error_of([&] { choose_checkpoint(memory, "new", "out", *context); }),
                      "no complete checkpoint there"));
  // No checkpoint can be read. The run stops, because it would otherwise overwrite the existing
  // files.
  const auto nothing = error_of([&] { choose_checkpoint(memory, "out", "", *context); });
  for (const char* text : {"none of the checkpoints in out/checkpoints can be read",
                           "step-00000050", "step-00000100", "step-00000150"})
    BOOST_TEST(contains(nothing, text));
}

BOOST_AUTO_TEST_CASE(a_directory_has_the_name_of_its_step) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  memory.write_directory("out/checkpoints/step-00000050",
                         encode_checkpoint(*context, state_at(*context, 100)));
  BOOST_TEST(contains(error_of([&] { read_checkpoint(memory, "out/checkpoints/step-00000050"); }),
                      "step 100 does not belong in a directory of that name"));
}

BOOST_AUTO_TEST_CASE(what_is_another_job_is_told) {
  const auto context = context_of(digits_job());
  memory_storage memory;
  write(memory, *context, 50);
  auto job = digits_job();
  job.mutable_learning_rate()->set_base(0.3F);
  job.set_protocol(proto::RING);
  job.mutable_checkpoint()->set_every_steps(7);
  const auto text = text_of(choose_checkpoint(memory, "out", "", *context_of(job)));
  BOOST_TEST(contains(text, "learning_rate.base: 0.3 here, 0.1 there"));
  BOOST_TEST(contains(text, "protocol: RING here, ASYNC_PS there"));
  BOOST_TEST(!contains(text, "checkpoint."));
}

BOOST_AUTO_TEST_CASE(old_ones_are_removed) {
  const temporary_directory directory;
  disk_storage disk;
  memory_storage memory;
  const auto context = context_of(digits_job());
  for (troupe::storage* where :
       {static_cast<troupe::storage*>(&disk), static_cast<troupe::storage*>(&memory)}) {
    for (const std::uint64_t step : {50, 100, 150, 200, 250})
      write(*where, *context, step, directory.path());
    keep_checkpoints(*where, directory.path(), 200, 2);
    // The newest checkpoint of this run is 200. So checkpoint 250 was left by another run, and may
    // be damaged. It is not removed, and does not count as one of the two that are kept.
    BOOST_TEST((where->directories(directory.path())
                == std::vector<std::string>{"step-00000150", "step-00000200", "step-00000250"}));
  }
}

BOOST_AUTO_TEST_CASE(metrics_go_on) {
  auto from = state_at(*context_of(digits_job()), 50, 2);
  from.directory = "out/checkpoints/step-00000050";
  const std::string first = R"({"event": "epoch", "epoch": 1, "test_loss": null})";
  const std::string second = R"({"event":"epoch","epoch":2})";
  const std::string resumed = R"({"event":"resume","step":20})";
  const std::string step = R"({"event":"evaluation","step":50})";
  const auto text = resumed_metrics(
    first + '\n' + resumed + "\n" + step + "\n" + second + "\n" + "\nnonsense\n[]\n"
      + R"({"event":"epoch","epoch":3})" + '\n' + R"({"event":"epoch","epoch":"2"})" + '\n'
      + R"({"event":"resume","step":60})" + '\n' + R"({"event":"evaluation","step":51})" + '\n'
      + R"({"event":"end"})" + '\n' + R"({"event":"epo)",
    from);
  const auto kept = first + '\n' + resumed + '\n' + step + '\n' + second + '\n';
  BOOST_TEST_REQUIRE(text.substr(0, kept.size()) == kept);
  const auto last = nlohmann::json::parse(text.substr(kept.size()));
  BOOST_TEST(last.at("event") == "resume");
  BOOST_TEST(last.at("step") == 50);
  BOOST_TEST(last.at("epoch") == 3);
  BOOST_TEST(last.at("samples") == 210);
  BOOST_TEST(last.at("checkpoint") == from.directory.string());
  BOOST_TEST(resumed_metrics("", from) == text.substr(kept.size()));
}

// Disk operation N fails, for N = 0, 1, 2, ... until a run has no failure. After each failure, the
// newest or the previous checkpoint is complete.
BOOST_AUTO_TEST_CASE(a_disk_that_fails_at_every_operation) {
  class failing_disk : public disk_storage {
  public:
    int left = -1;

  protected:
    void before_change(std::string_view operation, const std::filesystem::path& where) override {
      if (left == 0)
        throw std::system_error{ENOSPC, std::generic_category(),
                                "cannot " + std::string{operation} + ' ' + where.string()};
      --left;
    }
  };
  const auto context = context_of(digits_job());
  const auto attempt = [&](failing_disk& disk, const std::filesystem::path& folder,
                           std::uint64_t step) {
    try {
      write(disk, *context, step, folder);
      keep_checkpoints(disk, folder, step, 1);
      return true;
    } catch (const std::system_error& error) {
      BOOST_TEST(contains(error.what(), "No space left"));
      return false;
    }
  };
  int failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    const temporary_directory directory;
    const auto folder = checkpoint_folder(directory.path());
    failing_disk disk;
    BOOST_TEST_REQUIRE(attempt(disk, folder, 50));
    disk.left = failures;
    failed = !attempt(disk, folder, 100);
    const auto found = choose_checkpoint(disk, directory.path(), "", *context);
    BOOST_TEST((step_of(found) == 100U || (failed && step_of(found) == 50U)), failures);
    // A damaged checkpoint would be skipped with a notice. There is none.
    BOOST_TEST(!contains(text_of(found), "skipped"));
    // The disk has space again.
    disk.left = -1;
    BOOST_TEST_REQUIRE(attempt(disk, folder, 150));
    disk.tidy(folder, checkpoint_prefix);
    BOOST_TEST(std::distance(std::filesystem::directory_iterator{folder},
                             std::filesystem::directory_iterator{})
               == 1);
    BOOST_TEST(step_of(choose_checkpoint(disk, directory.path(), "", *context)) == 150U);
  }
  BOOST_TEST(failures > 10);
}

// Paths with `.`, `..` or links can name the same folder.
BOOST_AUTO_TEST_CASE(checkpoints_of_the_own_directory) {
  const temporary_directory here;
  const auto out = here.path() / "out";
  const auto folder = out / "checkpoints" / "step-00000010";
  const auto own = [](const std::filesystem::path& directory, const std::filesystem::path& output) {
    troupe::checkpoint x;
    x.directory = directory;
    return is_own_checkpoint(x, output);
  };
  for (const bool there : {false, true}) {
    if (there)
      std::filesystem::create_directories(folder);
    BOOST_TEST(own(folder, out));
    BOOST_TEST(own(folder / "", out));
    BOOST_TEST(own(folder, out / ""));
    BOOST_TEST(own(out / "." / "checkpoints" / ".." / "checkpoints" / "step-00000010", out));
    BOOST_TEST(own(folder, std::filesystem::relative(out)));
    BOOST_TEST(!own(folder, here.path() / "other"));
    BOOST_TEST(!own(folder, ""));
  }
  std::filesystem::create_directory_symlink(out, here.path() / "link");
  BOOST_TEST(own(here.path() / "link" / "checkpoints" / "step-00000010", out));
}

BOOST_AUTO_TEST_CASE(what_was_interrupted_is_not_seen) {
  const temporary_directory directory;
  disk_storage disk;
  const auto context = context_of(digits_job());
  const auto folder = checkpoint_folder(directory.path());
  write(disk, *context, 50, folder);
  // These folders look as if one run was killed while it wrote checkpoint 100, and another run was
  // killed while it removed checkpoint 10.
  for (const auto* name : {".tmp-step-00000100", ".old-step-00000010"}) {
    std::filesystem::create_directory(folder / name);
    std::ofstream{folder / name / "weights.safetensors"} << "half";
  }
  BOOST_TEST((disk.directories(folder) == std::vector<std::string>{"step-00000050"}));
  const auto found = choose_checkpoint(disk, directory.path(), "", *context);
  BOOST_TEST(step_of(found) == 50U);
  BOOST_TEST(!contains(text_of(found), "skipped"));
  write(disk, *context, 100, folder);
  disk.tidy(folder, checkpoint_prefix);
  BOOST_TEST(!std::filesystem::exists(folder / ".old-step-00000010"));
  BOOST_TEST(step_of(choose_checkpoint(disk, directory.path(), "", *context)) == 100U);
}

BOOST_AUTO_TEST_SUITE_END()
