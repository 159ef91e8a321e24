// Registers the settings and the facts about this machine.
#include "tilekernels/config.h"

#include <charconv>
#include <string>

#include "call.h"
#include "tilekernels/cache.h"
#include "tilekernels/stream.h"
#include "tilekernels/version.h"

namespace tilekernels::python {
namespace {

const Registration kVersion("version", "version",
                            [](PyCall& call) { call.give(std::optional<std::string>(version())); });

const Registration kDtypeNames("dtype_names", "dtype_names", [](PyCall& call) {
  std::vector<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) names.emplace_back(name(static_cast<DType>(i)));
  call.give(names);
});

const Registration kBackends("backends", "backends", [](PyCall& call) {
  std::vector<std::string> texts;
  for (const BackendStatus& status : backends()) {
    texts.emplace_back(name(status.backend));
    texts.emplace_back(status.available ? "yes" : "");
    texts.push_back(status.detail);
  }
  call.give(texts);
});

const Registration kSetBackend("set_backend", "set_backend", [](PyCall& call) {
  const auto backend = call.maybe_text();
  set_backend(backend ? std::optional(backend_from_name(*backend)) : std::nullopt);
});
const Registration kGetBackend("get_backend", "get_backend", [](PyCall& call) {
  const std::optional<Backend> backend = get_backend();
  call.give(backend ? std::optional<std::string>(name(*backend)) : std::nullopt);
});

const Registration kSetNumThreads("set_num_threads", "set_num_threads", [](PyCall& call) {
  set_num_threads(call.integer("num_threads"));
});
const Registration kGetNumThreads("get_num_threads", "get_num_threads",
                                  [](PyCall& call) { call.give(int64_t{get_num_threads()}); });

const Registration kCpuTargets("cpu_targets", "cpu_targets",
                               [](PyCall& call) { call.give(cpu_targets()); });
const Registration kSetCpuTarget("set_cpu_target", "set_cpu_target",
                                 [](PyCall& call) { set_cpu_target(call.text()); });
const Registration kGetCpuTarget("get_cpu_target", "get_cpu_target", [](PyCall& call) {
  call.give(std::optional<std::string>(get_cpu_target()));
});

const Registration kSetCheckData("set_check_data", "set_check_data",
                                 [](PyCall& call) { set_check_data(call.flag()); });
const Registration kGetCheckData("get_check_data", "get_check_data",
                                 [](PyCall& call) { call.give(get_check_data()); });

const Registration kSetPdl("set_pdl", "set_pdl", [](PyCall& call) { set_pdl(call.flag()); });
const Registration kGetPdl("get_pdl", "get_pdl", [](PyCall& call) { call.give(get_pdl()); });

// "cuda", "cuda:1", "npu", "npu:0", or nothing.
std::optional<Device> maybe_device(PyCall& call) {
  const std::optional<std::string> text = call.maybe_text();
  if (!text) return std::nullopt;
  const size_t colon = text->find(':');
  const std::string kind = text->substr(0, colon);
  int32_t index = 0;
  bool is_legal = kind == "cuda" || kind == "npu";
  if (colon != std::string::npos) {
    const char* const end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data() + colon + 1, end, index);
    is_legal = is_legal && error == std::errc() && rest == end;
  }
  if (!is_legal) call.refuse("device", "must be cuda, cuda:N, npu or npu:N", *text);
  return Device{kind == "cuda" ? DeviceType::kCuda : DeviceType::kAscend, index};
}

const Registration kIsAscend("is_ascend", "is_ascend",
                             [](PyCall& call) { call.give(is_ascend()); });
const Registration kGetDevice("get_device", "get_device", [](PyCall& call) {
  call.give(std::optional<std::string>(get_device() == DeviceType::kAscend ? "npu" : "cuda"));
});
const Registration kGetDeviceNumSms("get_device_num_sms", "get_device_num_sms", [](PyCall& call) {
  call.give(int64_t{get_device_num_sms(maybe_device(call))});
});
const Registration kSetNumSms("set_num_sms", "set_num_sms",
                              [](PyCall& call) { set_num_sms(call.integer("num_sms")); });
const Registration kGetNumSms("get_num_sms", "get_num_sms", [](PyCall& call) {
  call.give(int64_t{get_num_sms(maybe_device(call))});
});
const Registration kGetMaxSmem("get_max_smem_per_sm", "get_max_smem_per_sm", [](PyCall& call) {
  call.give(int64_t{get_max_smem_per_sm(maybe_device(call))});
});
const Registration kGetMaxUb("get_max_ub_per_vector_core", "get_max_ub_per_vector_core",
                             [](PyCall& call) {
                               call.give(int64_t{get_max_ub_per_vector_core(call.flag())});
                             });
const Registration kSetTokenAlignment("set_token_alignment", "set_token_alignment",
                                      [](PyCall& call) {
                                        set_token_alignment(call.integer("token_alignment"));
                                      });
const Registration kGetTokenAlignment("get_token_alignment", "get_token_alignment",
                                      [](PyCall& call) {
                                        call.give(int64_t{get_token_alignment()});
                                      });
const Registration kUseDeterministic("use_deterministic_algorithms", "use_deterministic_algorithms",
                                     [](PyCall& call) {
                                       use_deterministic_algorithms(call.flag());
                                     });
const Registration kGetDeterministic("get_deterministic_algorithms", "get_deterministic_algorithms",
                                     [](PyCall& call) {
                                       call.give(get_deterministic_algorithms());
                                     });

const Registration kSetAmaxClamp("set_amax_clamp_for_quant", "set_amax_clamp_for_quant",
                                 [](PyCall& call) {
                                   const DType fmt = call.dtype();
                                   const bool use_e4m3_sf = call.flag();
                                   set_amax_clamp_for_quant(fmt, use_e4m3_sf,
                                                            static_cast<float>(call.number()));
                                 });
const Registration kGetAmaxClamp("get_amax_clamp_for_quant", "get_amax_clamp_for_quant",
                                 [](PyCall& call) {
                                   const DType fmt = call.dtype();
                                   call.give(double{get_amax_clamp_for_quant(fmt, call.flag())});
                                 });

const Registration kCacheDir("cache_dir", "cache_dir", [](PyCall& call) {
  call.give(std::optional<std::string>(cache_dir()));
});
const Registration kSetCacheDir("set_cache_dir", "set_cache_dir",
                                [](PyCall& call) { set_cache_dir(call.text()); });
const Registration kSetLogHook("set_log_hook", "set_log_hook",
                               [](PyCall& call) { set_log_hook(call.maybe_hook()); });

const Registration kReset("reset_runtime_config", "reset_runtime_config",
                          [](PyCall&) { reset_runtime_config(); });

const Registration kCheckErrors("check_errors", "check_errors", [](PyCall& call) {
  // The handle is the caller's, a number in Python.
  check_errors({reinterpret_cast<void*>(static_cast<intptr_t>(call.handle()))});
});

}  // namespace
}  // namespace tilekernels::python
