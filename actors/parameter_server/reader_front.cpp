#include "actors/parameter_server/reader_front.hpp"

namespace troupe {

reader_front::reader_front(caf::actor_config& cfg, std::uint64_t view, range where,
                           std::shared_ptr<const version_pool> versions)
  : reader_actor::base(cfg), view_(view), where_(where), versions_(std::move(versions)) {}

reader_front::behavior_type reader_front::make_behavior() {
  return {in_view(this, &reader_front::on_pull)};
}

caf::result<proto::Weights, payload> reader_front::on_pull(const proto::Pull&) {
  auto newest = versions_->newest();
  proto::Weights header;
  header.set_version(newest.version);
  header.set_begin(where_.begin);
  header.set_count(where_.size());
  return {std::move(header), std::move(newest.data)};
}

} // namespace troupe
