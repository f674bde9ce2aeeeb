#pragma once

#include "actors/model/protocol_traits.hpp"
#include "actors/output/run_report.hpp"
#include "actors/simulation/simulation.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace troupe::test {

/// The ways to run a job. `here`: all actors on the real scheduler of one actor system.
/// `simulated`: one node per task on the test scheduler, over simulated links. `processes`: one
/// process per task, over TCP on loopback.
enum class way { here, simulated, processes };

std::ostream& operator<<(std::ostream& out, way x);

inline constexpr way all_ways[] = {way::here, way::simulated, way::processes};

/// The protocols that are part of troupe and accept any optimizer.
extern const std::vector<proto::Protocol> all_protocols;

/// The traits of one of `all_protocols`.
const protocol_traits& traits_of(proto::Protocol x);

/// Settings that make the weights of all workers equal after every step, so that a checkpoint is
/// possible at any step.
std::vector<std::string> equal_after_every_step(proto::Protocol x);

/// Trains a job. If the run takes longer than a few minutes, ends it and says so in the summary.
run_summary train(way how, const proto::Job& job, std::uint32_t workers, std::uint32_t ps);

run_summary train_here(const proto::Job& job, std::uint32_t workers, std::uint32_t ps);
run_summary train_in_processes(const proto::Job& job, std::uint32_t workers, std::uint32_t ps);

/// Options to simulate a job, with its data already read.
simulation_options simulated(const proto::Job& job, std::size_t workers, std::size_t ps,
                             std::uint64_t seed = 1);

/// Checks that a simulated run with one worker and one or three shards gets the weights of a serial
/// loop, bit for bit.
void check_equals_serial(const proto::Job& job);

} // namespace troupe::test
