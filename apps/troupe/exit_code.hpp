#pragma once

namespace troupe {

enum exit_code : int { exit_done = 0, exit_failed = 1, exit_bad_input = 2 };

} // namespace troupe
