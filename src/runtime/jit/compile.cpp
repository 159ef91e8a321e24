// Kernels compiled at run time: what one depends on, and the way from text to binary, the same for
// every compiler that is a library.
#include "runtime/jit/compile.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "core/message.h"
#include "tilekernels/error.h"

namespace tilekernels::jit {
namespace {

std::string define(const char* name, const std::vector<int32_t>& values) {
  std::string text = std::string("-D") + name + "={";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(values[i]);
  }
  return text + "}";
}

std::string describe(const Compiler& compiler, int result) {
  const char* const text =
      compiler.get_error_string == nullptr ? nullptr : compiler.get_error_string(result);
  return text == nullptr ? "error " + std::to_string(result) : text;
}

// A program that destroys itself.
class Program {
 public:
  Program(const Compiler& compiler, const Text& text, const std::string& file)
      : compiler_(compiler), op_(text.op) {
    require(compiler_.create_program(&handle_, text.source, file.c_str(), 0, nullptr, nullptr));
  }
  ~Program() { compiler_.destroy_program(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return compiler_.compile_program(handle_, static_cast<int>(texts.size()), texts.data());
  }

  std::string log() {
    size_t size = 0;
    if (compiler_.get_program_log_size(handle_, &size) != 0 || size == 0) return "";
    std::string log(size + 1, '\0');  // whether or not the size counts the terminating zero
    if (compiler_.get_program_log(handle_, log.data()) != 0) return "";
    log.resize(log.find('\0'));
    return log;
  }

  std::string binary() {
    size_t size = 0;
    require(compiler_.get_binary_size(handle_, &size));
    std::string binary(size, '\0');
    require(compiler_.get_binary(handle_, binary.data()));
    return binary;
  }

 private:
  void require(int result) {
    if (result == 0) return;
    throw BackendError(
        message(op_, compiler_.identity + " failed: " + describe(compiler_, result)));
  }

  const Compiler& compiler_;
  const char* op_;
  void* handle_ = nullptr;
};

}  // namespace

std::vector<std::string> constants_of(const CompileJob& job) {
  std::vector<std::string> options = {define("TILEKERNELS_SHAPE", job.shape)};
  if (!job.tile.empty()) options.push_back(define("TILEKERNELS_TILE", job.tile));
  return options;
}

std::string key_of(const Text& text, const std::vector<std::string>& options,
                   const Compiler& compiler) {
  std::string key = std::string("op ") + text.op + "\ntext " + text.digest + "\ncompiler " +
                    compiler.identity + "\noptions";
  for (const std::string& option : options) key += " " + option;
  return key + "\n";
}

Output compile(const CompileJob& job, const std::string& file,
               const std::vector<std::string>& options, const Compiler& compiler) {
  Program program(compiler, *job.text, file);
  const int result = program.compile(options);
  std::string log = program.log();
  if (result != 0) {
    throw BackendError(message(job.text->op, compiler.identity + " cannot compile the kernel for " +
                                                 std::string(job.arch) + ": " +
                                                 describe(compiler, result) + "\n" +
                                                 key_of(*job.text, options, compiler) + log));
  }
  return {program.binary(), std::move(log)};
}

std::string library_size(const void* symbol) {
  Dl_info info;
  struct stat file;
  if (dladdr(symbol, &info) == 0 || stat(info.dli_fname, &file) != 0) return "";
  return std::to_string(file.st_size) + " bytes";
}

}  // namespace tilekernels::jit
