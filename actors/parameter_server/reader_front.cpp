#include "actors/parameter_server/reader_front.hpp"

namespace troupe {

reader_front::reader_front(caf::actor_config& cfg, std::uint64_t view, range where,
                           std::shared_ptr<const version_pool> versions,
                           std::shared_ptr<pulled_versions> pulled,
                           std::shared_ptr<activity_board> board)
  : reader_actor::base(cfg), view_(view), where_(where), versions_(std::move(versions)),
    pulled_(std::move(pulled)), board_(std::move(board)) {}

reader_front::behavior_type reader_front::make_behavior() {
  return {in_view(this, &reader_front::on_pull)};
}

caf::result<proto::Weights, payload> reader_front::on_pull(const proto::Pull& x) {
  auto newest = versions_->newest();
  if (pulled_ && x.has_worker())
    pulled_->note(x.worker(), newest);
  if (board_)
    board_->count_bytes_sent(newest.data.size());
  proto::Weights header;
  header.set_version(newest.version);
  header.set_begin(where_.begin);
  header.set_count(where_.size());
  return {std::move(header), std::move(newest.data)};
}

} // namespace troupe
