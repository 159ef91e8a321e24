// The scalar format conversions over all 2^32 fp32 patterns. Minutes; run by hand.
#include <gtest/gtest.h>

#include "numerics/narrowing.h"

namespace tilekernels::test {
namespace {

TEST(FormatsExhaustive, NarrowEveryFp32) { sweep_all(0, 1); }

}  // namespace
}  // namespace tilekernels::test
