#include "actors/protocols/protocol.hpp"

#include "actors/model/job_context.hpp"
#include "actors/protocols/async_ps/async_ps.hpp"
#include "actors/protocols/hogwild/hogwild.hpp"
#include "actors/protocols/local_sgd/local_sgd.hpp"
#include "actors/protocols/ring/ring.hpp"
#include "actors/protocols/ssp/ssp.hpp"
#include "actors/protocols/sync_ps/sync_ps.hpp"
#include "kernels/error.hpp"

#include <algorithm>

namespace troupe {

namespace {

struct starters {
  proto::Protocol id;
  std::function<void(const worker_site&)> worker;
  std::function<void(const shard_site&)> shard;
};

const starters& starters_of(proto::Protocol id) {
  static const starters rows[] = {
    {proto::ASYNC_PS, start_async_ps_worker, start_async_ps_shard},
    {proto::SYNC_PS, start_sync_ps_worker, start_sync_ps_shard},
    {proto::RING, start_ring_worker, {}},
    {proto::LOCAL_SGD, start_local_sgd_worker, {}},
    {proto::HOGWILD, start_hogwild_worker, start_hogwild_shard},
    {proto::SSP, start_ssp_worker, start_ssp_shard},
  };
  return *std::ranges::find(rows, id, &starters::id);
}

} // namespace

const std::vector<protocol>& builtin_protocols() {
  static const auto rows = [] {
    std::vector<protocol> result;
    for (auto& x : builtin_traits()) {
      const auto& start = starters_of(x.id);
      result.push_back({x, start.worker, start.shard});
    }
    return result;
  }();
  return rows;
}

const protocol& protocol_of(const job_context& context, std::span<const protocol> own) {
  const auto& wanted = context.protocol;
  for (const auto rows : {std::span<const protocol>{builtin_protocols()}, own})
    for (auto& x : rows)
      if (x.traits.id == wanted.id && x.traits.name == wanted.name)
        return x;
  throw input_error{"this program cannot start protocol " + wanted.name
                    + "; add it to training_options or node_options"};
}

std::vector<protocol_traits> traits_of(std::span<const protocol> own) {
  std::vector<protocol_traits> result;
  for (auto& x : own)
    result.push_back(x.traits);
  return result;
}

} // namespace troupe
