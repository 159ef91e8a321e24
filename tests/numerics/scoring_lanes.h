// What the tests of the activations' lane twins say to the code that is compiled once a target.
#pragma once

namespace tilekernels::test {

enum class LaneFunction { kExp, kSqrtSoftplus, kSqrtSoftplusDerivative, kSigmoid };

}  // namespace tilekernels::test
