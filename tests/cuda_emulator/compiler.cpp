// The emulator's NVRTC: device text, rewritten, compiled by the host's g++ into a shared object.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "image.h"
#include "prelude.h"
#include "rewrite.h"

extern char** environ;

namespace cuda_emulator {
namespace {

constexpr int kInvalidInput = 3;
constexpr int kInvalidOption = 5;
constexpr int kCompilation = 6;

struct Program {
  std::string source;
  std::string name;
  std::string log{};
  std::string image{};
};

Program& program_of(void* program) { return *static_cast<Program*>(program); }

// A folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* const root = std::getenv("TMPDIR");
    path_ = std::string(root == nullptr || *root == '\0' ? "/tmp" : root) + "/cuda-emulator-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder " + path_);
  }
  ~TemporaryFolder() {
    for (const char* file : kFiles) unlink((path_ + "/" + file).c_str());
    rmdir(path_.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const char* file) const { return path_ + "/" + file; }

  static constexpr const char* kFiles[] = {"text.cpp", "text.i", "kernel.cpp", "kernel.so", "log"};

 private:
  std::string path_;
};

std::string read(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

// Taken out of the object's line numbers, which then are relative as the text's are.
std::string current_folder() {
  char* const path = getcwd(nullptr, 0);
  const std::string folder = path == nullptr ? "/" : path;
  std::free(path);
  return folder;
}

// Runs g++; throws what it says unless it succeeds.
void run_compiler(std::vector<std::string> words, const std::string& log) {
  words.insert(words.begin(), kCompiler);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int result = posix_spawnp(&child, kCompiler, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (result != 0) throw std::runtime_error(std::string("cannot start ") + kCompiler);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(read(log));
}

// The options of NVRTC that say something here: macros and the architecture.
std::vector<std::string> macros_of(int count, const char* const* options) {
  std::vector<std::string> macros = {"-D__CUDACC_RTC__=1", "-D__CUDACC__=1"};
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    if (option.rfind("-D", 0) == 0) {
      macros.push_back(option);
    } else if (option.rfind("-arch=sm_", 0) == 0) {
      const int arch = std::atoi(option.c_str() + std::strlen("-arch=sm_"));
      macros.push_back("-D__CUDA_ARCH__=" + std::to_string(10 * arch));
    } else if (option != "-std=c++17" && option != "-default-device" && option != "--fmad=false" &&
               option != "--ftz=false" && option != "--prec-div=true" &&
               option != "--prec-sqrt=true" && option != "--ptxas-options=-v") {
      throw std::invalid_argument("the emulator does not know the option " + option);
    }
  }
  return macros;
}

void compile(Program& program, const std::vector<std::string>& macros) {
  const TemporaryFolder folder;
  write(folder / "text.cpp", program.source);
  std::vector<std::string> words = {"-E",        "-x",          "c++",    "-std=c++17",
                                    "-nostdinc", "-nostdinc++", "-undef", "-w"};
  words.insert(words.end(), macros.begin(), macros.end());
  words.insert(words.end(), {folder / "text.cpp", "-o", folder / "text.i"});
  run_compiler(words, folder / "log");
  Rewritten rewritten = rewrite(read(folder / "text.i"));
  write(folder / "kernel.cpp",
        std::string(rewritten.has_dynamic_shared ? "#define EMULATOR_DYNAMIC_SHARED\n" : "") +
            kPrelude + rewritten.text);
  words = {"-x",
           "c++",
           "-std=c++17",
           "-O1",
           "-g1",
           "-w",
           "-fPIC",
           "-shared",
           "-nostdinc",
           "-nostdinc++",
           "-ffp-contract=off",
           "-fno-math-errno",
           "-fno-exceptions",
           "-fno-rtti",
           "-fno-strict-aliasing",
           "-fno-gnu-unique",
           "-fvisibility=hidden",
           "-fvisibility-inlines-hidden",
           "-fno-stack-protector",
           "-fcf-protection=none",
           "-fno-asynchronous-unwind-tables",
           "-fdebug-prefix-map=" + current_folder() + "=.",
           "-fsanitize=thread",
           "--param=tsan-distinguish-volatile=1",
           "--param=tsan-instrument-func-entry-exit=0",
           "-nostartfiles",
           "-nodefaultlibs",
           "-Wl,-Bsymbolic",
           "-Wl,--hash-style=gnu",
           folder / "kernel.cpp",
           "-o",
           folder / "kernel.so",
           "-lm",
           "-lc",
           "-lgcc"};
  run_compiler(words, folder / "log");
  program.image = make_image(read(folder / "kernel.so"));
}

}  // namespace
}  // namespace cuda_emulator

#define EXPORT extern "C" __attribute__((visibility("default")))
using cuda_emulator::Program;
using cuda_emulator::program_of;

// Version 0, which NVIDIA never gave, and a digest of all that the objects depend on: it is part of
// the key in the caches.
EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 0;
  *minor = cuda_emulator::kDigest;
  return 0;
}
EXPORT const char* nvrtcGetErrorString(int error) {
  switch (error) {
    case 0:
      return "no error";
    case cuda_emulator::kInvalidInput:
      return "CUDA emulator: invalid input";
    case cuda_emulator::kInvalidOption:
      return "CUDA emulator: invalid option";
    default:
      return "CUDA emulator: compilation failed";
  }
}
EXPORT int nvrtcCreateProgram(void** program, const char* source, const char* name, int num_headers,
                              const char* const*, const char* const*) {
  if (num_headers != 0) return cuda_emulator::kInvalidInput;  // the texts have no includes
  *program = new Program{source, name};
  return 0;
}
EXPORT int nvrtcCompileProgram(void* program, int num_options, const char* const* options) {
  Program& made = program_of(program);
  try {
    compile(made, cuda_emulator::macros_of(num_options, options));
    made.log = "compiled for the host by the CUDA emulator\n";
    return 0;
  } catch (const std::invalid_argument& error) {
    made.log = error.what();
    return cuda_emulator::kInvalidOption;
  } catch (const std::exception& error) {
    made.log = error.what();
    return cuda_emulator::kCompilation;
  }
}
EXPORT int nvrtcGetProgramLogSize(void* program, size_t* size) {
  return *size = program_of(program).log.size() + 1, 0;
}
EXPORT int nvrtcGetProgramLog(void* program, char* log) {
  return std::strcpy(log, program_of(program).log.c_str()), 0;
}
EXPORT int nvrtcGetCUBINSize(void* program, size_t* size) {
  return *size = program_of(program).image.size(), 0;
}
EXPORT int nvrtcGetCUBIN(void* program, char* cubin) {
  const std::string& image = program_of(program).image;
  return std::memcpy(cubin, image.data(), image.size()), 0;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  delete &program_of(*program);
  *program = nullptr;
  return 0;
}
