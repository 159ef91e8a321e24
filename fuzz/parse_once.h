// What the fuzzer and the mutation test do with one input: parse it as a header, an index or JSON.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/json.h"
#include "io/safetensors.h"
#include "tilekernels/error.h"

namespace tilekernels {

/// Byte 0 chooses the parser, bytes 1..8 are the size of the data section, the rest is the text.
/// Returns whether it was accepted. Anything but acceptance or DataError is a fault; what was
/// accepted must come back the same from the writer.
inline bool parse_once(std::string_view input) {
  if (input.size() < 9) return false;
  int64_t data_bytes = 0;
  for (size_t i = 0; i < 8; ++i) {
    data_bytes |= int64_t{static_cast<unsigned char>(input[1 + i])} << (8 * i);
  }
  const std::string_view text = input.substr(9);
  try {
    switch (static_cast<unsigned char>(input[0]) % 3) {
      case 0: {
        io::Header header = io::parse_header(text, data_bytes & INT64_MAX, "input");
        io::Header again = header;
        const std::string head = io::build_header(&again);
        const io::Header parsed =
            io::parse_header(std::string_view(head).substr(8), header.data_bytes(), "again");
        if (parsed.tensors.size() != header.tensors.size()) std::abort();
        for (size_t i = 0; i < parsed.tensors.size(); ++i) {
          if (parsed.tensors[i].name != header.tensors[i].name) std::abort();
          if (parsed.tensors[i].begin != header.tensors[i].begin) std::abort();
        }
        break;
      }
      case 1: {
        const io::Index index = io::parse_index(text, "input");
        const std::string again = io::build_index(index, 1);
        if (io::parse_index(again, "again").weight_map != index.weight_map) std::abort();
        break;
      }
      default:
        io::dump_json(io::parse_json(text, "input"));
        break;
    }
  } catch (const DataError&) {
    return false;
  }
  return true;
}

/// Inputs from which mutations start.
inline std::string seed_input(unsigned i) {
  const std::string texts[] = {
      R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F8_E4M3","shape":[2,3],)"
      R"("data_offsets":[0,6]},"a.weight_scale_inv":{"dtype":"F32","shape":[1,1],)"
      R"("data_offsets":[6,10]}} )",
      R"({"metadata":{"total_size":10},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
      R"("b":"model-00002-of-00002.safetensors"}})",
      R"({"architectures":["X"],"torch_dtype":"bfloat16","x":1.5e3,"y":[null,true,-1,"\u00e9"]})",
      R"({"f4":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]},)"
      R"("none":{"dtype":"BF16","shape":[0],"data_offsets":[8,8]}})",
      "{}",
      R"({"weight_map":{"t":"x.safetensors"}})",
  };
  const unsigned kinds[] = {0, 1, 2, 0, 0, 1};
  const unsigned sizes[] = {10, 0, 0, 8, 0, 0};
  const unsigned k = i % 6;
  std::string input(9, '\0');
  input[0] = static_cast<char>(kinds[k]);
  input[1] = static_cast<char>(sizes[k]);
  return input + texts[k];
}
inline constexpr unsigned kNumSeedInputs = 6;

}  // namespace tilekernels
