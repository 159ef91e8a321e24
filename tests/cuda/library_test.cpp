// The table of a library that is looked for at the first need.
#include "runtime/jit/library.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda/children.h"
#include "errors.h"
#include "tilekernels/error.h"

namespace tilekernels::jit {
namespace {

constexpr const char* kForked =
    "this process was forked while another thread started the library: fork before the first call";

pid_t child = -1;

std::string fork_while_opening(int& table);
LazyTable<int> lazy{"room", fork_while_opening};

// As another thread would, at the worst of times.
std::string fork_while_opening(int& table) {
  child = cuda::start_child([] {
    alarm(20);  // a hang ends the child badly
    const std::string thrown = tilekernels::error_of<BackendError>([] { lazy.get(); });
    return lazy.problem() == kForked && thrown == "[room] " + std::string(kForked) &&
           !lazy.is_ready();
  });
  table = 7;
  return "";
}

TEST(LazyTable, AForkWhileItIsFilledIsAClearErrorAndNoHang) {
  EXPECT_EQ(lazy.get(), 7);
  EXPECT_TRUE(cuda::ended_well(child));
  EXPECT_EQ(lazy.problem(), "");
  EXPECT_TRUE(cuda::runs_well([] { return lazy.get() == 7; }));
}

}  // namespace
}  // namespace tilekernels::jit
