// A library that is opened at run time: a driver, or a compiler.
#pragma once

#include <dlfcn.h>

#include <string>

namespace tilekernels::jit {

/// Opens a library for the life of the process, and fills a table of its entry points.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) problem_ = dlerror();
  }

  bool is_open() const { return handle_ != nullptr; }
  /// The loader's words; empty when the library is open.
  const std::string& problem() const { return problem_; }

  /// Null for an entry point that the library lacks.
  template <class Function>
  void load(Function*& entry, const char* name) {
    entry = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (entry == nullptr && absent_ == nullptr) absent_ = name;
  }
  /// The first entry point that it lacks; null: none.
  const char* absent() const { return absent_; }

 private:
  void* handle_;
  std::string problem_;
  const char* absent_ = nullptr;
};

}  // namespace tilekernels::jit
