// Writes the seed corpus of parse_fuzzer into the folder given.
#include <cstdio>
#include <fstream>

#include "parse_once.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  for (unsigned i = 0; i < tilekernels::kNumSeedInputs; ++i) {
    std::ofstream(std::string(argv[1]) + "/seed" + std::to_string(i), std::ios::binary)
        << tilekernels::seed_input(i);
  }
  return 0;
}
