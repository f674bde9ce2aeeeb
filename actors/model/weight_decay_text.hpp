#pragma once

#include <string>

namespace troupe {

struct job_context;

/// A text that compares the weight decay of one dense layer without activation with scikit-learn:
/// the parameter of the estimator that minimizes the same (Ridge's alpha, LogisticRegression's C,
/// the C of support vector machines), and how to exempt the intercept if the decay applies to it.
/// Empty without weight decay, with an L1 penalty, for other models, and for optimizers whose decay
/// is not part of the loss (ADAMW, LAMB).
std::string weight_decay_text(const job_context& context);

} // namespace troupe
