// The NPU's run-time compiler: aclrtc, opened at the first need, turns kernel text into a binary.
#include "runtime/ascend/npu/compile.h"

#include <utility>
#include <vector>

#include "core/settings.h"
#include "runtime/ascend/npu/acl.h"
#include "runtime/jit/library.h"

namespace tilekernels::ascend::npu {
namespace {

std::string open_machine_aclrtc(jit::Compiler& table) {
  const std::string named = aclrtc_library();
  std::string found = open_aclrtc(named.empty() ? "libacl_rtc.so" : named, table);
  if (!found.empty() && named.empty()) {
    found +=
        " (source the set_env.sh of a CANN toolkit, or name the library in "
        "TILEKERNELS_ACLRTC_LIBRARY)";
  }
  return found;
}

constinit jit::LazyTable<jit::Compiler> lazy{"ascend", open_machine_aclrtc};

std::vector<std::string> options_of(const jit::CompileJob& job) {
  // Kernels say themselves what waits for what, and what is rounded once.
  std::vector<std::string> options = {"--npu-arch=" + std::string(job.arch), "-O3",
                                      "--cce-auto-sync=off", "-ffp-contract=off"};
  for (std::string& constant : jit::constants_of(job)) options.push_back(std::move(constant));
  return options;
}

}  // namespace

std::string open_aclrtc(const std::string& library, jit::Compiler& into) {
  jit::Library opened(library);
  if (!opened.is_open()) {
    return "the NPU's run-time compiler is missing: " + opened.problem();
  }
  into.version = nullptr;
  into.get_error_string = nullptr;
  opened.load(into.create_program, "aclrtcCreateProg");
  opened.load(into.compile_program, "aclrtcCompileProg");
  opened.load(into.get_program_log_size, "aclrtcGetCompileLogSize");
  opened.load(into.get_program_log, "aclrtcGetCompileLog");
  opened.load(into.get_binary_size, "aclrtcGetBinDataSize");
  opened.load(into.get_binary, "aclrtcGetBinData");
  opened.load(into.destroy_program, "aclrtcDestroyProg");
  if (opened.absent() != nullptr) {
    return "the NPU's run-time compiler is too old: " + library + " has no " + opened.absent();
  }
  // The library has no version of its own; its toolkit's runtime has.
  into.identity = "aclrtc" + std::string(acl_version().empty() ? "" : " of acl " + acl_version());
  const std::string size = jit::library_size(reinterpret_cast<const void*>(into.create_program));
  if (!size.empty()) into.identity += ", " + size;
  return "";
}

const jit::Compiler& aclrtc() { return lazy.get(); }

std::string aclrtc_problem() { return lazy.problem(); }

bool is_aclrtc_ready() { return lazy.is_ready(); }

void forget_aclrtc() { lazy.replace(nullptr); }

std::string key_of(const jit::CompileJob& job, const jit::Compiler& compiler) {
  return jit::key_of(*job.text, options_of(job), compiler);
}

jit::Compiled compile(const jit::CompileJob& job, const jit::Compiler& compiler) {
  jit::Output made =
      jit::compile(job, std::string(job.text->op) + ".asc", options_of(job), compiler);
  return {std::move(made.binary), {}};
}

}  // namespace tilekernels::ascend::npu
