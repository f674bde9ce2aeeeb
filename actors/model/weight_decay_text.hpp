#pragma once

#include <string>

namespace troupe {

struct job_context;

/// A text that compares the weight decay of one dense layer without activation with scikit-learn.
/// It names the parameter of the estimator that minimizes the same function (Ridge's alpha,
/// LogisticRegression's C, the C of support vector machines). If the decay also applies to the
/// intercept, the text says how to exempt the intercept. The text is empty without weight decay,
/// with an L1 penalty, and for other models. It is also empty for optimizers whose decay is not
/// part of the loss (ADAMW, LAMB).
std::string weight_decay_text(const job_context& context);

} // namespace troupe
