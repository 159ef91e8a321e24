// What the build knows and a kernel's compilation needs; prelude.cpp is made by CMakeLists.txt.
#pragma once

namespace cuda_emulator {

extern const char* const kPrelude;   // api.h, builtins.h, ptx.h
extern const char* const kCompiler;  // g++
extern const int kDigest;            // of the sources of the emulator, and the compiler's version

}  // namespace cuda_emulator
