// Twenty thousand damaged headers, indexes and JSON files: each is accepted or refused, never more.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "../../fuzz/parse_once.h"

namespace tilekernels {
namespace {

// SplitMix64: the same inputs on every machine and every run.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
};

const char* const kWords[] = {"\"dtype\":",
                              "\"shape\":",
                              "\"data_offsets\":",
                              "{",
                              "}",
                              "[",
                              "]",
                              ",",
                              "\"",
                              "-1",
                              "0",
                              "1e9",
                              "9223372036854775807",
                              "18446744073709551616",
                              "\\u0000",
                              "\\",
                              "\"F4\"",
                              "\"F64\"",
                              "\"__metadata__\":",
                              "null",
                              "../"};

std::string mutate(std::string text, Random* random) {
  const size_t num_edits = 1 + random->below(4);
  for (size_t e = 0; e < num_edits && !text.empty(); ++e) {
    const size_t at = random->below(text.size());
    const size_t length = 1 + random->below(std::min<size_t>(16, text.size() - at));
    switch (random->below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random->below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random->next());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(random->below(text.size()), length));
        break;
      case 4:
        text.insert(at, kWords[random->below(std::size(kWords))]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(Mutations, AreAcceptedOrRefused) {
  Random random{20261129};
  const auto start = std::chrono::steady_clock::now();
  constexpr int kRounds = 24000;
  int accepted = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string seed = seed_input(static_cast<unsigned>(i));
    // The text, and now and then the size and the choice of the parser too.
    const size_t kept = i % 7 == 0 ? 0 : 9;
    const std::string input = seed.substr(0, kept) + mutate(seed.substr(kept), &random);
    try {
      accepted += parse_once(input) ? 1 : 0;
    } catch (const std::exception& error) {
      FAIL() << "round " << i << ": " << error.what();
    }
  }
  // Both outcomes must be common, or the mutations say nothing.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_LT(accepted, kRounds / 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

TEST(Mutations, SeedsAreAccepted) {
  for (unsigned i = 0; i < kNumSeedInputs; ++i) EXPECT_TRUE(parse_once(seed_input(i))) << i;
}

// A few bytes must not make the parser ask for much memory or time.
TEST(Mutations, LargeInputsTakeLinearTime) {
  std::string many_names = "{\"__metadata__\":{\"k\":\"v\"";
  for (int i = 0; i < 200000; ++i) many_names += ",\"k" + std::to_string(i) + "\":\"v\"";
  many_names += "}}";
  EXPECT_TRUE(parse_once(std::string(9, '\0') + many_names));

  std::string many_tensors = "{\"weight_map\":{\"t\":\"x.safetensors\"";
  for (int i = 0; i < 200000; ++i)
    many_tensors += ",\"t" + std::to_string(i) + "\":\"x.safetensors\"";
  many_tensors += "}}";
  EXPECT_TRUE(parse_once(std::string("\x01\0\0\0\0\0\0\0\0", 9) + many_tensors));

  EXPECT_FALSE(parse_once(std::string("\x02\0\0\0\0\0\0\0\0", 9) + std::string(4000000, '[')));
  EXPECT_FALSE(
      parse_once(std::string(9, '\0') + "{\"a\":{\"shape\":[" + std::string(4000000, '[')));
}

}  // namespace
}  // namespace tilekernels
