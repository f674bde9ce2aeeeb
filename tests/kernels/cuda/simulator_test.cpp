#include "tests/kernels/cuda/simulator.hpp"

#include "tests/kernels/cuda/faults.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <string>
#include <vector>

// The simulator must detect the faults that simulator.hpp lists.

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(simulator)

BOOST_AUTO_TEST_CASE(threads_meet_at_barriers_and_in_shuffles) {
  in_all_orders([] {
    device_array<int> out(2 * block_threads);
    const view<int> y{out.data(), out.size()};
    launch({}, "meet", {2, block_threads * sizeof(int)}, [&](const thread& t) {
      const auto space = t.shared<int>(block_threads);
      space.store(t.index(), static_cast<int>(t.index()));
      t.barrier();
      const auto other = space.load(block_threads - 1 - t.index());
      y.store(t.first(), warp_sum(t, other));
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Adds up the 32 numbers of the other warp.
      const auto first =
        static_cast<int>(block_threads - warp_threads * (1 + i % block_threads / 32));
      BOOST_TEST(out.values()[i] == 32 * first + 31 * 16);
    }
  });
}

BOOST_AUTO_TEST_CASE(accesses_beyond_memory) {
  const device_array<int> a(std::vector<int>(10, 1));
  const view<int> x{a.data(), 10};
  const view<int> too_long{a.data(), 11};
  contains(fault_of([&](const thread& t) { x.store(t.index() + 5, 0); }),
           "thread 5: a write of element 10 of a view of 10");
  contains(fault_of([&](const thread& t) {
             if (t.index() == 7)
               too_long.load(10);
           }),
           "thread 7: a read of element 10 of a view that is not all in one allocation");
  std::vector<int> host(4);
  contains(fault_of([&](const thread&) {
             view<int>{host.data(), 4}.load(0);
           }),
           "not all in one allocation of the device");
  contains(fault_of([&](const thread& t) { t.shared<int>(3); }, 1, 8),
           "12 bytes of shared memory are used; the launch has 8");
}

BOOST_AUTO_TEST_CASE(addresses_and_launches_that_no_gpu_takes) {
  const device_array<float> a(std::vector<float>(8, 1.0F));
  auto* const odd = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(a.data()) + 2);
  contains(fault_of([&](const thread&) {
             view<const float>{odd, 4}.load(0);
           }),
           "elements of 4 bytes at an address that is not a multiple of this");
  contains(fault_of([](const thread&) {}, 1, (std::size_t{48} << 10) + 1),
           "a launch of 1 blocks with 49153 bytes of shared memory");
  contains(fault_of([](const thread&) {}, std::size_t{1} << 31), "a launch of 2147483648 blocks");
  BOOST_TEST(fault_of([](const thread&) {}, 1, std::size_t{48} << 10) == "(no error)");
}

// The number of blocks is small, so loops over elements need several rounds. A loop that forgets to
// continue with its stride then computes wrong results.
BOOST_AUTO_TEST_CASE(loops_run_several_rounds) {
  BOOST_TEST(blocks_for(10 * block_threads) == few_blocks);
  set_most_blocks(most_gpu_blocks);
  BOOST_TEST(blocks_for(10 * block_threads) == 10U);
  set_most_blocks(few_blocks);
}

BOOST_AUTO_TEST_CASE(writes_past_a_view_are_found_later) {
  auto* const memory = static_cast<int*>(allocate_simulated(12));
  memory[3] = 0;
  BOOST_CHECK_EXCEPTION(free_simulated(memory), simulation_error, [](const auto& e) {
    return contains(e.what(), "the guard band of an allocation was written to");
  });
}

BOOST_AUTO_TEST_CASE(reads_of_nothing) {
  const device_array<float> a(8);
  contains(fault_of([&](const thread&) {
             view<const float>{a.data(), 8}.load(0);
           }),
           "a read of memory that nothing has written");
  contains(fault_of([&](const thread& t) { t.shared<float>(2).load(1); }, 1, 8),
           "a read of memory that nothing has written");
}

BOOST_AUTO_TEST_CASE(races) {
  const device_array<int> a(std::vector<int>(block_threads, 1));
  const view<int> x{a.data(), a.size()};
  const auto next = [](const thread& t) { return (t.index() + 1) % block_threads; };
  in_all_orders([&] {
    // Reads the element of another thread without a barrier after the write. Then writes it without
    // a barrier after the read.
    contains(fault_of([&](const thread& t) {
               x.store(t.index(), 1);
               x.load(next(t));
             }),
             "a race");
    contains(fault_of([&](const thread& t) {
               const auto y = x.load(next(t));
               x.store(t.index(), y);
             }),
             "a race");
    contains(fault_of([&](const thread&) { x.store(0, 1); }), "a race: a write over");
    // There is no barrier between the threads of two blocks.
    contains(fault_of(
               [&](const thread& t) {
                 if (t.index() == 0)
                   x.store(3, 1);
                 t.barrier();
               },
               2),
             "a race");
    BOOST_TEST(fault_of([&](const thread& t) {
                 const auto y = x.load(next(t));
                 t.barrier();
                 x.store(t.index(), y);
                 t.barrier();
                 x.load(next(t));
               })
               == "(no error)");
    // The next launch sees what this launch has written.
    BOOST_TEST(fault_of([&](const thread& t) { x.load(next(t)); }) == "(no error)");
  });
}

BOOST_AUTO_TEST_CASE(divergent_barriers_and_shuffles) {
  contains(fault_of([](const thread& t) {
             if (t.index() != 40)
               t.barrier();
           }),
           "thread 40: does not reach a barrier");
  contains(fault_of([](const thread& t) {
             if (t.index() % 2 == 0)
               t.barrier();
             else
               t.barrier();
           }),
           "thread 1: waits in a barrier at line");
  contains(fault_of([](const thread& t) {
             if (t.lane() != 3)
               t.shuffle_xor(1, 1);
           }),
           "thread 3: does not reach a shuffle");
  contains(fault_of([](const thread& t) { t.shuffle_xor(1, t.lane() == 9 ? 2 : 1); }),
           "lanes of a warp shuffle by different masks");
  // A whole warp may skip a shuffle.
  BOOST_TEST(fault_of([](const thread& t) {
               if (t.warp() == 1)
                 t.shuffle_xor(1, 1);
               t.barrier();
             })
             == "(no error)");
}

BOOST_AUTO_TEST_CASE(errors_name_the_kernel_and_leave_a_usable_simulator) {
  contains(fault_of(
             [](const thread& t) {
               if (t.block() == 2 && t.index() == 0)
                 t.shared<int>(1);
               t.barrier();
             },
             3),
           "kernel faulty, block 2, thread 0: ");
  BOOST_TEST(fault_of([](const thread& t) { t.barrier(); }) == "(no error)");
}

BOOST_AUTO_TEST_SUITE_END()
