// The compiler table: finding it, the key of a kernel, its errors and its report.
#include "runtime/cuda/compile.h"

#include <gtest/gtest.h>

#include <set>

#include "cuda/fake.h"
#include "errors.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
namespace {

const Text kText{"gather", "d1", "int x;"};
const Text kOtherOp{"scatter", "d1", "int x;"};
const Text kOtherDigest{"gather", "d2", "int y;"};

CompileJob job(const Text& text = kText, std::string_view arch = "sm_90a", bool pdl = false) {
  return {&text, {256, 8}, {4}, arch, pdl};
}

TEST(OpenNvrtc, SaysWhatIsWrong) {
  Nvrtc table;
  EXPECT_EQ(open_nvrtc("libabsent.so", table),
            "the compiler library NVRTC cannot be opened: libabsent.so: cannot open shared object "
            "file: No such file or directory");
  EXPECT_EQ(open_nvrtc("libm.so.6", table),
            "the compiler library libm.so.6 is no NVRTC of CUDA 12 or newer: it has no "
            "nvrtcVersion");
}

TEST(Nvrtc, TheNamedLibraryIsTheOnlyCandidate) {
  setenv("TILEKERNELS_NVRTC_LIBRARY", "/nowhere/libnvrtc.so", 1);
  replace_nvrtc(nullptr);
  EXPECT_NE(nvrtc_problem().find("/nowhere/libnvrtc.so"), std::string::npos) << nvrtc_problem();
  EXPECT_THROW(nvrtc(), BackendError);
  fake::Machine machine;
  machine.counts = fake::make_shared_memory<fake::Counts>();
  fake::machine = &machine;
  replace_driver(&fake::kDriver);
  EXPECT_FALSE(status().available);
  EXPECT_EQ(status().detail, nvrtc_problem());
  replace_driver(nullptr);
  unsetenv("TILEKERNELS_NVRTC_LIBRARY");
  replace_nvrtc(nullptr);
}

TEST(Key, HoldsEverythingThatTheBinaryDependsOn) {
  const Nvrtc compiler = fake::make_nvrtc("13.0");
  const Nvrtc other_compiler = fake::make_nvrtc("13.1");
  EXPECT_EQ(key_of(job(), compiler),
            "op gather\ntext d1\ncompiler nvrtc 13.0\noptions -arch=sm_90a -std=c++17 "
            "-default-device --fmad=false --ftz=false --prec-div=true --prec-sqrt=true "
            "--ptxas-options=-v -DTILEKERNELS_PDL=0 -DTILEKERNELS_SHAPE={256,8} "
            "-DTILEKERNELS_TILE={4}\n");
  CompileJob other_shape = job();
  other_shape.shape[0] = 128;
  CompileJob other_tile = job();
  other_tile.tile[0] = 8;
  CompileJob tile_in_shape = job();
  tile_in_shape.shape = {256, 8, 4};
  tile_in_shape.tile = {};
  const std::set<std::string> keys = {
      key_of(job(), compiler),
      key_of(job(), other_compiler),
      key_of(job(kOtherOp), compiler),
      key_of(job(kOtherDigest), compiler),
      key_of(job(kText, "sm_100a"), compiler),
      key_of(job(kText, "sm_90a", true), compiler),
      key_of(other_shape, compiler),
      key_of(other_tile, compiler),
      key_of(tile_in_shape, compiler),
  };
  EXPECT_EQ(keys.size(), 9u);
}

TEST(Compile, AnErrorCarriesTheWholeLog) {
  fake::Machine machine;
  const fake::Install install(machine);
  const Text broken{"gather", "d3", "#error"};
  const std::string text = error_of<BackendError>([&] { compile(job(broken), nvrtc()); });
  EXPECT_EQ(text.find("[gather] nvrtc 13.0 cannot compile the kernel for sm_90a: "
                      "NVRTC_ERROR_COMPILATION\n"),
            0u)
      << text;
  EXPECT_NE(text.find("-DTILEKERNELS_SHAPE={256,8}"), std::string::npos) << text;
  EXPECT_NE(text.find("first line of the log\nlast line of the log\n"), std::string::npos) << text;
}

TEST(Compile, ReadsTheCompilersReport) {
  const KernelResources found = parse_resources(
      "ptxas info    : 8 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     24 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 512 "
      "bytes smem\n"
      "ptxas info    : Compile time = 17.690 ms");
  EXPECT_EQ(found.registers, 255);
  EXPECT_EQ(found.stack_bytes, 24);
  EXPECT_EQ(found.spill_bytes, 28);
  EXPECT_EQ(found.shared_bytes, 512);
  EXPECT_EQ(parse_resources("").registers, 0);
}

}  // namespace
}  // namespace tilekernels::cuda
