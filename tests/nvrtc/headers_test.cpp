// Compiles the device-safe headers with NVRTC, which has no std headers: the scalar numerics and
// every op's contract. Needs no GPU and no toolkit header; skipped without the NVRTC library.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "paths.h"
#include "runtime/cuda/compile.h"

namespace tilekernels::test {
namespace {

namespace fs = std::filesystem;

class NvrtcHeaders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << cuda::nvrtc_problem();
  }

  /// Compiles for sm_90a; a failure shows the whole log.
  void compile(const std::string& text) {
    const std::string include = "-I" + tilekernels::paths::kSource + "/src";
    const char* options[] = {"-default-device", "-std=c++17", "--fmad=false",
                             "--gpu-architecture=sm_90a", include.c_str()};
    const cuda::Nvrtc& nvrtc = cuda::nvrtc();
    void* program = nullptr;
    ASSERT_EQ(nvrtc.create_program(&program, text.c_str(), "headers.cu", 0, nullptr, nullptr), 0);
    const int result = nvrtc.compile_program(program, std::size(options), options);
    size_t size = 0;
    nvrtc.get_program_log_size(program, &size);
    std::string log(size, '\0');
    nvrtc.get_program_log(program, log.data());
    nvrtc.destroy_program(&program);
    EXPECT_EQ(result, 0) << log << "\nof the text:\n" << text;
  }
};

/// Paths of the files that `keep` accepts, relative to src/, in order.
template <class Keep>
std::vector<std::string> find_headers(const std::string& room, Keep keep) {
  std::vector<std::string> found;
  const fs::path source = fs::path(tilekernels::paths::kSource) / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source / room)) {
    if (entry.is_regular_file() && keep(entry.path().filename().string())) {
      found.push_back(fs::relative(entry.path(), source).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TEST_F(NvrtcHeaders, EveryScalarHeaderAlone) {
  const std::vector<std::string> headers = find_headers("numerics", [](const std::string& name) {
    return ends_with(name, ".h") && !ends_with(name, "-inl.h");
  });
  ASSERT_GE(headers.size(), 6u);
  for (const std::string& header : headers) {
    SCOPED_TRACE(header);
    compile("#include \"" + header + "\"\n__global__ void kernel() {}\n");
  }
}

TEST_F(NvrtcHeaders, KernelThatUsesThem) {
  compile(R"(
#include "numerics/fault.h"
#include "numerics/philox.h"
#include "numerics/row_sum.h"
#include "numerics/scaling.h"
#include "numerics/scoring.h"
#include "numerics/sf_layout.h"
#include "numerics/topk_key.h"

using namespace tilekernels::numerics;

extern "C" __global__ void kernel(float* out, const float* x, const uint16* x16, const uint8* x8,
                                  uint8* codes, uint64* fault, int32 kind, int64 m, int64 k) {
  uint32 amax = 0;
  for (int32 i = 0; i < 32; ++i) amax = amax_update(amax, x[i]);
  const Scale s = compute_scale(kind, false, amax, default_amax_clamp(false, kind == kSfE4M3));
  const SfStorage sf = sf_storage(kSfUE8M0, kSfColPacked, kSfPitchCuda, m, k);
  codes[sf.map.offset(m - 1, k - 1)] = s.byte;
  codes[0] = quantize_e4m3(x[0], fused_factor(s.sf, s.inv));
  codes[1] = pack_e2m1(quantize_e2m1(x[0], x[0] * s.inv), f32_to_e2m1(x[1]));
  codes[2] = f32_to_e5m2(x[2]);
  codes[3] = f32_to_ue8m0(x[3]).byte;
  out[0] = bf16_to_f32(x16[0]) + f16_to_f32(x16[1]) + load_bf16(x16[2]) + load_f16(x16[3]);
  out[1] = e4m3_to_f32(x8[0]) + e5m2_to_f32(x8[1]) + e2m1_to_f32(x8[2]) + ue8m0_to_f32(x8[3]);
  out[2] = fma_rn(x[4], x[5], inverse_of_scale(x[6]));
  out[3] = static_cast<float>(f32_to_bf16(x[7]) + f32_to_f16(x[8]) + topk_key(x[9]));
  out[4] = sqrt_softplus(x[11]) + sigmoid(x[12]) + exp_f32(x[13]) + sqrt_softplus_derivative(x[14]);
  out[5] = sum_partials(out + 6) + uniform(philox(*fault, 1, 2).word[3]);
  if (!is_finite(x[10])) *fault = fault_word(m, 1, kFaultNotFinite);
}
)");
}

TEST_F(NvrtcHeaders, EveryOpContract) {
  for (const std::string& header :
       find_headers("ops", [](const std::string& name) { return name == "op.h"; })) {
    SCOPED_TRACE(header);
    compile("#include \"" + header + "\"\n__global__ void kernel() {}\n");
  }
}

// The compiler is what rejects a std header, not this test's luck.
TEST_F(NvrtcHeaders, HasNoStdHeaders) {
  const char* text = "#include <cstdint>\n__global__ void kernel() {}\n";
  const cuda::Nvrtc& nvrtc = cuda::nvrtc();
  void* program = nullptr;
  ASSERT_EQ(nvrtc.create_program(&program, text, "std.cu", 0, nullptr, nullptr), 0);
  const char* options[] = {"-std=c++17"};
  EXPECT_NE(nvrtc.compile_program(program, 1, options), 0);
  nvrtc.destroy_program(&program);
}

}  // namespace
}  // namespace tilekernels::test
