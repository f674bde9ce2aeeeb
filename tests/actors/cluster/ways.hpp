#pragma once

#include "actors/output/run_report.hpp"
#include "actors/simulation/simulation.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <ostream>

namespace troupe::test {

/// The ways to run one job: all actors on the real scheduler of one actor system; a node per task
/// on the test scheduler, over simulated links; a process per task, over TCP on loopback.
enum class way { here, simulated, processes };

std::ostream& operator<<(std::ostream& out, way x);

inline constexpr way all_ways[] = {way::here, way::simulated, way::processes};
inline constexpr proto::Protocol all_protocols[] = {proto::ASYNC_PS, proto::SYNC_PS, proto::RING};

/// Trains a job. Ends within a few minutes, or the summary says that it did not.
run_summary train(way how, const proto::Job& job, std::uint32_t workers, std::uint32_t ps);

run_summary train_here(const proto::Job& job, std::uint32_t workers, std::uint32_t ps);
run_summary train_in_processes(const proto::Job& job, std::uint32_t workers, std::uint32_t ps);

/// Options of a simulation of a job, its data read.
simulation_options simulated(const proto::Job& job, std::size_t workers, std::size_t ps,
                             std::uint64_t seed = 1);

} // namespace troupe::test
