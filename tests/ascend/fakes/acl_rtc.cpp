// Stands in for libacl_rtc: "compiles" a text into its options and itself.
#include <chrono>
#include <cstring>
#include <thread>

#include "ascend/fakes/fake.h"

namespace {

using namespace tilekernels::ascend;

constexpr int kErrorCompilation = 176003;

fake::Rtc rtc;

struct Program {
  std::string source;
  std::string log;
  std::string binary;
};
Program& program_of(void* program) { return *static_cast<Program*>(program); }

}  // namespace

extern "C" {

fake::Rtc* fake_rtc() { return &rtc; }

int aclrtcCreateProg(void** program, const char* source, const char* name, int num_headers,
                     const char**, const char**) {
  if (num_headers != 0) return 176001;
  *program = new Program{source, "", ""};
  ++rtc.programs;
  const std::lock_guard lock(rtc.mutex);
  rtc.last_name = name;
  return 0;
}
int aclrtcCompileProg(void* program, int num_options, const char** options) {
  ++rtc.compiles;
  Program& made = program_of(program);
  std::this_thread::sleep_for(std::chrono::milliseconds(rtc.compile_milliseconds));
  std::string all;
  for (int i = 0; i < num_options; ++i) all += std::string(options[i]) + "\n";
  {
    const std::lock_guard lock(rtc.mutex);
    rtc.last_options = all;
  }
  if (made.source.find("#error") != std::string::npos) {
    made.log = "first line of the log\nlast line of the log\n";
    return kErrorCompilation;
  }
  made.binary = "NPU " + all + made.source;
  return 0;
}
int aclrtcGetCompileLogSize(void* program, size_t* size) {
  return *size = program_of(program).log.size() + 1, 0;
}
int aclrtcGetCompileLog(void* program, char* log) {
  return std::strcpy(log, program_of(program).log.c_str()), 0;
}
int aclrtcGetBinDataSize(void* program, size_t* size) {
  return *size = program_of(program).binary.size(), 0;
}
int aclrtcGetBinData(void* program, char* binary) {
  const std::string& made = program_of(program).binary;
  return std::memcpy(binary, made.data(), made.size()), 0;
}
int aclrtcDestroyProg(void** program) {
  delete &program_of(*program);
  --rtc.programs;
  return 0;
}

}  // extern "C"
