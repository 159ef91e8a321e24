// Small kernels for the tests of the machine model.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/ascend/model/core.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

using model::Hazard;
using model::HazardKind;
using model::Options;
using model::Schedule;

constexpr CopyShape kVector{1, kVectorBytes};

template <class Body>
model::Program program(const Body& body) {
  return {"planted", [](const void* state) { (*static_cast<const Body*>(state))(); }, &body};
}

template <class Body>
void run(const Body& body, int64 num_cores = 1, const Options& options = {}) {
  run_cores(program(body), num_cores, options);
}

// What the model says of a kernel, under both schedules.
template <class Body>
void expect_hazard(HazardKind kind, const std::string& buffer, int64_t offset,
                   const std::string& sentence, const Body& body, int64 num_cores = 1) {
  for (Schedule schedule : {Schedule::kCopiesEarly, Schedule::kCopiesLate}) {
    Options options;
    options.schedule = schedule;
    try {
      run(body, num_cores, options);
      ADD_FAILURE() << "no hazard; want: " << sentence;
    } catch (const Hazard& hazard) {
      EXPECT_EQ(static_cast<int>(hazard.kind()), static_cast<int>(kind)) << hazard.what();
      EXPECT_EQ(hazard.buffer(), buffer) << hazard.what();
      EXPECT_EQ(hazard.offset(), offset) << hazard.what();
      EXPECT_EQ(hazard.sentence(), sentence);
      EXPECT_EQ(std::string(hazard.what()).rfind("[planted] ascend hazard ", 0), 0u);
    }
  }
}

inline void add_one(Ub<float> to, Ub<float> from) {
  const Mask all = pset<float>();
  Reg<float> x;
  vlds(x, from);
  vadds(x, x, 1.0f, all);
  vsts(to, x, all);
}
inline void fill_one(Ub<float> to) {
  const Mask all = pset<float>();
  Reg<float> x;
  vdup(x, 1.0f, all);
  vsts(to, x, all);
}
inline void read_only(Ub<float> from) {
  Reg<float> x;
  vlds(x, from);
}

}  // namespace tilekernels::ascend
