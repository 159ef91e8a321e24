// The order of scores, and the error word.
#include "numerics/topk_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "numerics/exact.h"
#include "numerics/fault.h"

namespace tilekernels::test {
namespace {

using namespace numerics;  // NOLINT: the functions under test

TEST(TopkKey, OrdersLikeTheNumbers) {
  std::vector<float> scores;
  for (uint64_t bits = 0; bits < 0x100000000; bits += 65521) {
    const float score = from_bits(static_cast<uint32_t>(bits));
    if (!std::isnan(score)) scores.push_back(score);
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float score : {0.0f, -0.0f, inf, -inf, from_bits(1), from_bits(0x80000001), 1.0f, -1.0f}) {
    scores.push_back(score);
  }
  std::sort(scores.begin(), scores.end());
  for (size_t i = 1; i < scores.size(); ++i) {
    const bool equal = scores[i - 1] == scores[i];
    ASSERT_EQ(topk_key(scores[i - 1]) == topk_key(scores[i]), equal) << scores[i];
    if (!equal) {
      ASSERT_LT(topk_key(scores[i - 1]), topk_key(scores[i])) << scores[i];
    }
  }
}

TEST(TopkKey, NanIsBelowEveryNumberAndAboveWhatIsTaken) {
  const int32_t least = topk_key(-std::numeric_limits<float>::infinity());
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_EQ(topk_key(from_bits(bits)), kTopkNan);
  }
  EXPECT_LT(kTopkNan, least);
  EXPECT_LT(kTopkTaken, kTopkNan);
  EXPECT_EQ(kTopkTaken, std::numeric_limits<int32_t>::min());
}

TEST(TopkKey, NegativeZeroEqualsZero) { EXPECT_EQ(topk_key(-0.0f), topk_key(0.0f)); }

TEST(Fault, WordHoldsRowOpAndKind) {
  const uint64_t word = fault_word((int64_t{1} << 47) + 5, 200, kFaultIndexOutOfRange);
  EXPECT_EQ(fault_row(word), (int64_t{1} << 47) + 5);
  EXPECT_EQ(fault_op(word), 200);
  EXPECT_EQ(fault_kind(word), kFaultIndexOutOfRange);
}

TEST(Fault, LowestRowWins) {
  const uint64_t low = fault_word(3, 255, 255);
  EXPECT_LT(low, fault_word(4, 0, kFaultNotFinite));
  EXPECT_LT(low, kNoFault);
  EXPECT_LT(fault_word((int64_t{1} << 48) - 1, 255, 254), kNoFault);
}

}  // namespace
}  // namespace tilekernels::test
