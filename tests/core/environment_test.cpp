// Start values from the environment: each in a child process, before anything was read.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr char kChild[] = "TILEKERNELS_TEST_CHILD";

// What the child prints by its exit status.
enum Outcome { kRan = 10, kRanReference, kRefused, kOther };

Outcome gate() {
  try {
    const float scores[4] = {1, 2, 3, 4};
    Backend ran = Backend::kCuda;
    topk_gate({const_cast<float*>(scores), TensorSpec({1, 4}, DType::kF32)}, 2, {.ran = &ran});
    return ran == Backend::kReference ? kRanReference : kRan;
  } catch (const std::invalid_argument&) {
    return kRefused;
  } catch (const std::exception&) {
    return kOther;
  }
}

Outcome forced_gate() {
  try {
    const float scores[4] = {1, 2, 3, 4};
    topk_gate({const_cast<float*>(scores), TensorSpec({1, 4}, DType::kF32)}, 2,
              {.backend = Backend::kReference});
    return kRan;
  } catch (const std::invalid_argument&) {
    return kRefused;
  } catch (const std::exception&) {
    return kOther;
  }
}

// Runs the test `Environment.Child` of this executable with one more variable.
int outcome(const char* variable, const char* value, const char* role) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value, 1);
    setenv(kChild, role, 1);
    unsetenv("GTEST_OUTPUT");
    execl("/proc/self/exe", "child", "--gtest_filter=Environment.Child", "--gtest_brief=1",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Environment, Child) {
  const char* role = std::getenv(kChild);
  if (role == nullptr) return;  // the parent's run of it
  _exit(std::string(role) == "forced" ? forced_gate() : gate());
}

TEST(Environment, ForcesABackend) {
  EXPECT_EQ(outcome("TILEKERNELS_BACKEND", "reference", "gate"), kRanReference);
  EXPECT_EQ(outcome("TILEKERNELS_BACKEND", "", "gate"),
            cpu_targets().empty() ? kRanReference : kRan);
  EXPECT_EQ(outcome("TILEKERNELS_BACKEND", "gpu", "gate"), kRefused);
  // Host tensors cannot run on cuda.
  EXPECT_EQ(outcome("TILEKERNELS_BACKEND", "cuda", "gate"), kRefused);
}

TEST(Environment, IsRefusedWhereItIsWrongEvenIfTheCallForcesABackend) {
  EXPECT_EQ(outcome("TILEKERNELS_NUM_THREADS", "3", "forced"), kRan);
  EXPECT_EQ(outcome("TILEKERNELS_NUM_THREADS", "many", "forced"), kRefused);
  EXPECT_EQ(outcome("TILEKERNELS_NUM_THREADS", "-1", "forced"), kRefused);
  EXPECT_EQ(outcome("TILEKERNELS_CHECK_DATA", "yes", "forced"), kRefused);
  EXPECT_EQ(outcome("TILEKERNELS_CPU_TARGET", "AVX1", "forced"), kRefused);
}

}  // namespace
}  // namespace tilekernels
