// The thread loop: covers every item once, in any nesting, from any thread, after any fork.
#include "runtime/cpu/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hwy/base.h"
#include "tilekernels/config.h"

namespace tilekernels::cpu {
namespace {

class ParallelTest : public testing::Test {
 protected:
  void TearDown() override { reset_runtime_config(); }
};

// How often each item was run, as seen by the caller without further synchronisation.
std::vector<int> count_runs(int64_t count, int64_t min_per_thread) {
  std::vector<int> runs(static_cast<size_t>(count), 0);
  parallel_for(count, min_per_thread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
  });
  return runs;
}

bool each_once(int64_t count, int64_t min_per_thread) {
  return count_runs(count, min_per_thread) == std::vector<int>(static_cast<size_t>(count), 1);
}

// Runs `body` in a forked child; the child's exit status, -1 when it died or hung.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ParallelTest, CoversEverySizeOnce) {
  for (const int threads : {1, 2, 3, 4, 7, 16}) {
    set_num_threads(threads);
    for (const int64_t count : {0, 1, 2, 3, 5, 63, 64, 65, 255, 256, 257, 1000, 4097}) {
      for (const int64_t min_per_thread : {1, 2, 7, 64, 5000}) {
        ASSERT_TRUE(each_once(count, min_per_thread))
            << threads << " threads, " << count << " items, at least " << min_per_thread;
      }
    }
  }
}

TEST_F(ParallelTest, RangesAreInBoundsAndNotEmpty) {
  set_num_threads(5);
  std::atomic<int> num_bad{0};
  for (int64_t count = 1; count < 300; ++count) {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      if (begin < 0 || begin >= end || end > count) ++num_bad;
    });
  }
  EXPECT_EQ(num_bad, 0);
}

TEST_F(ParallelTest, SmallWorkStaysInTheCaller) {
  set_num_threads(8);
  const auto caller = std::this_thread::get_id();
  int num_calls = 0;
  parallel_for(199, 100, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 199);
    ++num_calls;
  });
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ParallelTest, UsesTheThreadsThatAreSetAtEachCall) {
  for (const int threads : {4, 1, 2, 6, 3, 1, 6}) {
    set_num_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::atomic<int> num_inside{0};
    // Every range waits until all threads are inside, so that each of them must come.
    parallel_for(threads * 64, 1, [&](int64_t, int64_t) {
      bool is_new;
      {
        const std::lock_guard lock(mutex);
        is_new = ids.insert(std::this_thread::get_id()).second;
      }
      if (!is_new) return;
      ++num_inside;
      while (num_inside < threads) std::this_thread::yield();
    });
    EXPECT_EQ(ids.size(), static_cast<size_t>(threads));
  }
}

TEST_F(ParallelTest, NestedLoopsRun) {
  set_num_threads(4);
  std::vector<std::atomic<int>> runs(40 * 50);
  parallel_for(40, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto thread = std::this_thread::get_id();
      parallel_for(50, 1, [&](int64_t inner_begin, int64_t inner_end) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        for (int64_t j = inner_begin; j < inner_end; ++j) ++runs[static_cast<size_t>(i * 50 + j)];
      });
    }
  });
  for (const auto& count : runs) ASSERT_EQ(count, 1);
}

TEST_F(ParallelTest, ManyCallersAtOnce) {
  set_num_threads(3);
  std::atomic<int> num_bad{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&num_bad, caller] {
      for (int64_t count = 1; count < 400; ++count) {
        if (!each_once(count * (caller + 1), 1)) ++num_bad;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_bad, 0);
}

TEST_F(ParallelTest, ThousandsOfTinyCalls) {
  set_num_threads(4);
  int64_t sum = 0;
  for (int call = 0; call < 20000; ++call) {
    std::atomic<int64_t> items{0};
    parallel_for(8, 1, [&](int64_t begin, int64_t end) {
      items.fetch_add(end - begin, std::memory_order_relaxed);
    });
    sum += items;
  }
  EXPECT_EQ(sum, 160000);
}

TEST_F(ParallelTest, AnExceptionReachesTheCaller) {
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    for (int repeat = 0; repeat < 200; ++repeat) {
      try {
        parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            if (i >= 300 && i % 7 == 0) throw std::runtime_error(std::to_string(i));
          }
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "301");
      }
      ASSERT_TRUE(each_once(500, 1));
    }
  }
}

TEST_F(ParallelTest, AnExceptionOfANestedLoopReachesTheCaller) {
  set_num_threads(4);
  EXPECT_THROW(parallel_for(64, 1,
                            [](int64_t, int64_t) {
                              parallel_for(4, 1, [](int64_t, int64_t) {
                                throw std::invalid_argument("nested");
                              });
                            }),
               std::invalid_argument);
  // The thread still counts as outside of a body.
  EXPECT_TRUE(each_once(500, 1));
}

TEST_F(ParallelTest, AForkedChildWorks) {
  set_num_threads(4);
  ASSERT_TRUE(each_once(1000, 1));
  EXPECT_EQ(status_of_child([] { return each_once(1000, 1); }), 0);
  EXPECT_TRUE(each_once(1000, 1));
}

TEST_F(ParallelTest, AChildOfAChildWorks) {
  set_num_threads(3);
  ASSERT_TRUE(each_once(1000, 1));
  const auto grandchild = [] { return status_of_child([] { return each_once(777, 1); }) == 0; };
  EXPECT_EQ(status_of_child([&] { return each_once(1000, 1) && grandchild() && each_once(9, 1); }),
            0);
  // A child that never used the pool itself
  EXPECT_EQ(status_of_child(grandchild), 0);
}

TEST_F(ParallelTest, AForkWhileOthersAreInsideWorks) {
  set_num_threads(4);
  std::atomic<bool> stop{false};
  std::atomic<int> num_bad{0};
  std::atomic<int> num_callers{2};
  // Detached: tsan takes a child's thread at the address of a joinable one for that one.
  for (int caller = 0; caller < 2; ++caller) {
    std::thread([&] {
      while (!stop) {
        if (!each_once(100, 1)) ++num_bad;
      }
      --num_callers;
    }).detach();
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_EQ(status_of_child([] { return each_once(1000, 1); }), 0);
  }
  stop = true;
  while (num_callers > 0) std::this_thread::yield();
  EXPECT_EQ(num_bad, 0);
}

TEST_F(ParallelTest, AChildMayExitNormally) {
  if (HWY_IS_ASAN) GTEST_SKIP() << "the leak checker looks for the parent's threads in the child";
  set_num_threads(4);
  ASSERT_TRUE(each_once(1000, 1));
  // Through the destructors of static objects, with threads asleep and with none
  for (const bool use : {true, false}) {
    EXPECT_EQ(status_of_child([use] {
                if (!use || each_once(1000, 1)) std::exit(7);
                return false;
              }),
              7);
  }
}

TEST(ItemsPerThread, IsAtLeastOne) {
  EXPECT_EQ(items_per_thread(1e9), 1);
  EXPECT_EQ(items_per_thread(100), 200);
}

}  // namespace
}  // namespace tilekernels::cpu
