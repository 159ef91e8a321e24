// Warnings reach the hook, each once.
#include "core/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tilekernels/config.h"

namespace tilekernels {
namespace {

TEST(Log, SaysEachSentenceOnceToTheHook) {
  warn_once("said to nobody");
  std::vector<std::string> said;
  set_log_hook([&](std::string_view sentence) { said.emplace_back(sentence); });
  warn_once("first");
  warn_once("second");
  warn_once("first");
  warn_once("said to nobody");
  set_log_hook({});
  warn_once("third");
  EXPECT_EQ(said, (std::vector<std::string>{"first", "second", "said to nobody"}));
}

}  // namespace
}  // namespace tilekernels
