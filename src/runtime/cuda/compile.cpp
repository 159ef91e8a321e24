// The run-time compiler: NVRTC, opened at the first need, turns device text into a cubin.
#include "runtime/cuda/compile.h"

#include <dlfcn.h>

#include <charconv>
#include <utility>
#include <vector>

#include "core/settings.h"
#include "runtime/cuda/driver.h"
#include "runtime/jit/library.h"

namespace tilekernels::cuda {
namespace {

// The folder of the library or program that holds this code.
std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

// Where a compiler of that major version may be, the likeliest first.
std::vector<std::string> candidates(int major) {
  const std::string name = "libnvrtc.so." + std::to_string(major);
  // PyPI's folders; our library lies in site-packages/tilekernels/, or one deeper.
  const std::string package = major >= 13 ? "cu" + std::to_string(major) : "cuda_nvrtc";
  const std::string in_site_packages = "nvidia/" + package + "/lib/" + name;
  const std::string own = own_folder();
  return {name, own + "/../" + in_site_packages, own + "/../../" + in_site_packages,
          "/usr/local/cuda/lib64/" + name};
}

std::string open_machine_nvrtc(Nvrtc& table) {
  const std::string named = nvrtc_library();
  if (!named.empty()) return open_nvrtc(named, table);
  const int newest = driver_version() == 0 ? 13 : driver_version() / 1000;
  for (int major = 13; major >= 12; --major) {
    if (major > newest) continue;
    for (const std::string& candidate : candidates(major)) {
      if (open_nvrtc(candidate, table).empty()) return "";
    }
  }
  return "the compiler library NVRTC is missing: pip install nvidia-cuda-nvrtc" +
         std::string(newest < 13 ? "-cu12" : "") +
         ", or name a libnvrtc.so in TILEKERNELS_NVRTC_LIBRARY";
}

constinit jit::LazyTable<Nvrtc> lazy{"cuda", open_machine_nvrtc};

std::vector<std::string> options_of(const CompileJob& job) {
  std::vector<std::string> options = {
      "-arch=" + std::string(job.arch), "-std=c++17", "-default-device",
      // The bits of every backend are the same: no contraction, no flush to zero, IEEE division.
      "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v",
      std::string("-DTILEKERNELS_PDL=") + (job.pdl ? "1" : "0")};
  for (std::string& constant : jit::constants_of(job)) options.push_back(std::move(constant));
  return options;
}

// The integer that ends right before `words` in the line, 0 when they are not there.
int32_t number_before(std::string_view line, std::string_view words) {
  const size_t end = line.find(words);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int32_t value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

std::string open_nvrtc(const std::string& library, Nvrtc& table) {
  jit::Library opened(library);
  if (!opened.is_open()) {
    return "the compiler library NVRTC cannot be opened: " + opened.problem();
  }
  opened.load(table.version, "nvrtcVersion");
  opened.load(table.get_error_string, "nvrtcGetErrorString");
  opened.load(table.create_program, "nvrtcCreateProgram");
  opened.load(table.compile_program, "nvrtcCompileProgram");
  opened.load(table.get_program_log_size, "nvrtcGetProgramLogSize");
  opened.load(table.get_program_log, "nvrtcGetProgramLog");
  opened.load(table.get_binary_size, "nvrtcGetCUBINSize");
  opened.load(table.get_binary, "nvrtcGetCUBIN");
  opened.load(table.destroy_program, "nvrtcDestroyProgram");
  if (opened.absent() != nullptr) {
    return "the compiler library " + library + " is no NVRTC of CUDA 12 or newer: it has no " +
           opened.absent();
  }
  int major = 0;
  int minor = 0;
  table.version(&major, &minor);
  table.identity = "nvrtc " + std::to_string(major) + "." + std::to_string(minor);
  const std::string size = jit::library_size(reinterpret_cast<const void*>(table.version));
  if (!size.empty()) table.identity += ", " + size;
  return "";
}

const Nvrtc& nvrtc() { return lazy.get(); }

std::string nvrtc_problem() { return lazy.problem(); }

bool is_nvrtc_ready() { return lazy.is_ready(); }

void replace_nvrtc(const Nvrtc* table) { lazy.replace(table); }

std::string key_of(const CompileJob& job, const Nvrtc& compiler) {
  return jit::key_of(*job.text, options_of(job), compiler);
}

Compiled compile(const CompileJob& job, const Nvrtc& compiler) {
  jit::Output made =
      jit::compile(job, std::string(job.text->op) + "/cuda.cuh", options_of(job), compiler);
  return {std::move(made.binary), parse_resources(made.log)};
}

KernelResources parse_resources(std::string_view log) {
  KernelResources sum;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log = end == std::string_view::npos ? std::string_view() : log.substr(end + 1);
    sum.stack_bytes += number_before(line, " bytes stack frame");
    sum.spill_bytes += number_before(line, " bytes spill stores");
    sum.spill_bytes += number_before(line, " bytes spill loads");
    sum.shared_bytes += number_before(line, " bytes smem");
    sum.registers += number_before(line, " registers");
  }
  return sum;
}

}  // namespace tilekernels::cuda
