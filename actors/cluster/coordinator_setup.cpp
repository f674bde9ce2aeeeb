#include "actors/cluster/coordinator_setup.hpp"

#include "actors/checkpoint/resume.hpp"
#include "actors/model/constant_guess.hpp"
#include "actors/model/model_builder.hpp"
#include "actors/model/model_source.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <exception>

namespace troupe {

namespace {

// Returns the loss of a constant guess, for comparison with the model's loss. Reading the data may
// fail. This function ignores the failure, because the workers that need the data report it.
std::optional<double> guess(const coordinator_setup& setup) {
  if (!setup.data.train || setup.context->job.solver() == proto::EXACT)
    return std::nullopt;
  try {
    return constant_guess_loss(setup.context->job.model(), *setup.data.train);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Removes incomplete files of an interrupted run.
void tidy(const coordinator_setup& setup) {
  setup.files->tidy(setup.output, "");
  setup.files->tidy(checkpoint_folder(setup.output), checkpoint_prefix);
}

} // namespace

void open_output(coordinator_setup& setup, const std::optional<std::string>& resume) {
  const bool written = !setup.output.empty();
  if (setup.context->job.has_checkpoint() && !written)
    throw input_error{"checkpoint: there is no output directory to write checkpoints to; set "
                      "output, or --out"};
  if (resume && setup.context->job.solver() == proto::EXACT)
    throw input_error{
      "--resume: solver: EXACT makes no steps, so there is no checkpoint to continue from; "
      "leave it out"};
  if (written) {
    setup.files->prepare(setup.output);
    setup.files->lock(setup.output);
  }
  setup.constant_guess = guess(setup);
  auto begin = choose_checkpoint(*setup.files, setup.output, resume, *setup.context);
  setup.resume = std::move(begin.from);
  setup.notices = std::move(begin.notices);
  setup.notices.insert(setup.notices.end(), setup.data.notices.begin(), setup.data.notices.end());
  if (const auto text = logits_notice(setup.context->job.model()); !text.empty())
    setup.notices.push_back(text);
  if (setup.resume)
    setup.resumed_from = setup.resume->directory.string();
  else if (const auto weights =
             initial_weights(setup.context->job, setup.context->parameters(), setup.notices)) {
    setup.initial = payload::floats(weights->size());
    std::ranges::copy(*weights, setup.initial.as_mutable_floats().begin());
  }
  if (written)
    tidy(setup);
}

void open_output_again(coordinator_setup& setup) {
  setup.files->lock(setup.output);
  auto begin = choose_checkpoint(*setup.files, setup.output, "", *setup.context);
  if (!begin.from && !setup.resumed_from.empty())
    begin = choose_checkpoint(*setup.files, setup.output, setup.resumed_from, *setup.context);
  setup.resume = std::move(begin.from);
  setup.notices = std::move(begin.notices);
  tidy(setup);
}

} // namespace troupe
