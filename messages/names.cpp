#include "messages/names.hpp"

#include <array>

namespace troupe {

namespace {

constexpr std::array job_names{"evaluator", "worker", "ps", "coordinator"};

} // namespace

const char* to_string(job_kind x) noexcept {
  return job_names[static_cast<std::size_t>(x)];
}

std::string to_string(const task_name& x) {
  return std::string{to_string(x.job)} + '/' + std::to_string(x.index);
}

std::string to_string(const endpoint& x) {
  std::string service = proto::Service_Name(x.service);
  for (auto& c : service)
    c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return to_string(x.task) + " (" + service + ')';
}

proto::TaskName to_proto(const task_name& x) {
  proto::TaskName result;
  result.set_job(to_string(x.job));
  result.set_index(x.index);
  return result;
}

proto::Endpoint to_proto(const endpoint& x) {
  proto::Endpoint result;
  *result.mutable_task() = to_proto(x.task);
  result.set_service(x.service);
  return result;
}

bool parse_job(const std::string& text, job_kind& result) {
  for (std::size_t i = 0; i < job_names.size(); ++i)
    if (text == job_names[i]) {
      result = static_cast<job_kind>(i);
      return true;
    }
  return false;
}

bool from_proto(const proto::TaskName& x, task_name& result) {
  result.index = x.index();
  return parse_job(x.job(), result.job);
}

bool from_proto(const proto::Endpoint& x, endpoint& result) {
  result.service = x.service();
  return from_proto(x.task(), result.task);
}

} // namespace troupe
