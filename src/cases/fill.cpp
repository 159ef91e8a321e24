// Makes the bytes of inputs: a counter hash per element, so that any part can be made alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "cases/case.h"
#include "numerics/formats.h"

namespace tilekernels::cases {
namespace {

constexpr int64_t kElementsPerThread = 1 << 20;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t seed_of(std::string_view name) {
  uint64_t seed = 0xCBF29CE484222325u;
  for (char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return seed;
}

float uniform(uint64_t bits, float low, float high) {
  return low + (high - low) * static_cast<float>(bits >> 40) * 0x1p-24f;
}

// Sum of eight uniform bytes: close enough to a normal, and cheap for the large shapes.
float normal(uint64_t bits) {
  int sum = 0;
  for (int i = 0; i < 8; ++i) sum += static_cast<int>(bits >> (8 * i) & 0xFF);
  return static_cast<float>(sum - 1020) * (1.0f / 209.0f);
}

float signed_power(uint64_t bits, int low, int high) {
  const int exponent = low + static_cast<int>((bits >> 8) % static_cast<uint64_t>(high - low + 1));
  const float value = std::ldexp(uniform(bits, 1.0f, 2.0f), exponent);
  return bits & 1 ? -value : value;
}

constexpr float kTieValues[] = {1.0f,    -1.0f, 0.5f,  -1.5f, 0.25f,  0.75f, 1.25f,   1.75f,
                                2.5f,    3.5f,  5.0f,  -5.0f, 6.0f,   17.0f, 1.0625f, 464.0f,
                                1.1875f, 0.0f,  -0.0f, -2.5f, 480.0f, 3.0f,  -0.25f,  448.0f};

float edge(int64_t row, uint64_t bits) {
  switch (row % 16) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return signed_power(bits, -148, -130);
    case 3:
      return signed_power(bits, -127, -125);
    case 4:
      return signed_power(bits, -101, -98);
    case 5:
      return signed_power(bits, 123, 124);
    case 6:
      return bits & 1 ? 3.38e38f : -3.38e38f;
    case 7:
      return -100.0f + normal(bits);
    case 8:
      return -1.0f;
    case 9:
      return kTieValues[bits % std::size(kTieValues)];
    case 10:
      return std::ldexp(1.0f, static_cast<int>(bits % 40) - 20);
    case 11:  // e4m3 midpoints, one 448 in 16
      return bits % 16 == 0 ? 448.0f : 16.0f + static_cast<float>(bits >> 8 & 15) + 1.0f;
    case 12:  // e2m1 midpoints, one 6 in 16
      return bits % 16 == 0 ? 6.0f : 0.25f * static_cast<float>(bits >> 8 & 31);
    case 13:
      return bits % 16 == 0 ? 1e-4f : normal(bits) * 1e-5f;
    case 14:
      return bits % 61 == 0 ? 1e6f : bits % 7 == 0 ? 0.0f : normal(bits);
    default:
      return signed_power(bits, -60, 60);
  }
}

float non_finite(uint64_t bits) {
  switch (bits % 89) {
    case 0:
      return numerics::bit_cast<float>(0x7FC00000u | static_cast<uint32_t>(bits >> 41));
    case 1:
      return numerics::bit_cast<float>(0xFF800001u | static_cast<uint32_t>(bits >> 41));
    case 2:
      return INFINITY;
    case 3:
      return -INFINITY;
    default:
      return normal(mix(bits));
  }
}

float value(Fill fill, int64_t row, uint64_t bits) {
  switch (fill) {
    case Fill::kNormal:
      return normal(bits);
    case Fill::kTies:
      return kTieValues[bits % std::size(kTieValues)];
    case Fill::kZero:
      return bits & 1 ? -0.0f : 0.0f;
    case Fill::kEdge:
      return edge(row, bits);
    case Fill::kNonFinite:
      return non_finite(bits);
    case Fill::kScale:
      return std::fabs(signed_power(bits, -12, 12));
    case Fill::kPow2Scale:
      return std::ldexp(1.0f, static_cast<int>(bits % 25) - 12);
    case Fill::kBits:
    case Fill::kGiven:
      break;
  }
  return 0.0f;
}

template <class T>
void store(uint8_t* to, T element) {
  std::memcpy(to, &element, sizeof(T));
}

// One byte of a scale tensor, or of packed exponents.
uint8_t scale_byte(DType dtype, Fill fill, uint64_t bits) {
  if (dtype == DType::kE4M3) return static_cast<uint8_t>(1 + bits % 0x7E);
  return static_cast<uint8_t>(fill == Fill::kScale ? bits : 115 + bits % 25);
}

void store_element(uint8_t* to, const Input& input, int64_t row, uint64_t bits) {
  const DType dtype = input.spec.dtype;
  const bool is_scale = input.fill == Fill::kScale || input.fill == Fill::kPow2Scale;
  const auto size = static_cast<size_t>(size_bytes(dtype));
  if (input.fill == Fill::kBits) {
    std::memcpy(to, &bits, size);
    return;
  }
  switch (dtype) {
    case DType::kF32:
      return store(to, value(input.fill, row, bits));
    case DType::kBF16:
      return store(to, numerics::f32_to_bf16(value(input.fill, row, bits)));
    case DType::kF16:
      return store(to, numerics::f32_to_f16(value(input.fill, row, bits)));
    default:
      break;
  }
  for (size_t i = 0; i < size; ++i) {
    if (is_scale) {
      to[i] = scale_byte(dtype, input.fill, mix(bits + i));
    } else if (dtype == DType::kE4M3) {
      to[i] = numerics::f32_to_e4m3(value(input.fill, row, bits) * 16.0f);
    } else if (input.fill == Fill::kZero) {
      to[i] = dtype == DType::kE2M1x2 ? static_cast<uint8_t>(bits & 0x88) : uint8_t{0};
    } else {
      to[i] = static_cast<uint8_t>(bits >> (8 * i));
    }
  }
}

// Makes the elements begin <= i < end, counted row by row.
void fill_part(const Input& input, int64_t begin, int64_t end, uint8_t* bytes) {
  const TensorSpec& spec = input.spec;
  const int64_t size = size_bytes(spec.dtype);
  const uint64_t seed = seed_of(input.name);
  const int64_t row_numel = spec.rank() > 0 && end > 0 ? spec.numel() / spec.size(0) : 1;
  Dims at = spec.shape;
  int64_t left = begin;
  for (int dim = spec.rank() - 1; dim >= 0; --dim) {
    at[dim] = end > 0 ? left % spec.size(dim) : 0;
    left = end > 0 ? left / spec.size(dim) : 0;
  }
  for (int64_t i = begin; i < end; ++i) {
    int64_t offset = 0;
    for (int dim = 0; dim < spec.rank(); ++dim) offset += at[dim] * spec.stride(dim);
    uint8_t* to = bytes + offset * size;
    if (input.fill == Fill::kGiven) {
      std::memcpy(to, input.given.data() + i * size, static_cast<size_t>(size));
    } else {
      store_element(to, input, i / row_numel, mix(seed + static_cast<uint64_t>(i)));
    }
    for (int dim = spec.rank() - 1; dim >= 0; --dim) {
      if (++at[dim] < spec.size(dim)) break;
      at[dim] = 0;
    }
  }
}

}  // namespace

std::string_view name(Fill fill) {
  constexpr std::string_view kNames[] = {"normal", "ties",  "zero", "edge", "nonfinite",
                                         "bits",   "scale", "pow2", "given"};
  return kNames[static_cast<size_t>(fill)];
}

std::vector<uint8_t> make_bytes(const Input& input) {
  std::vector<uint8_t> bytes(static_cast<size_t>(input.spec.storage_bytes()), 0xFF);
  const int64_t numel = input.spec.numel();
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(numel / kElementsPerThread, 1, cores);
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&, part] {
      fill_part(input, numel * part / parts, numel * (part + 1) / parts, bytes.data());
    });
  }
  fill_part(input, 0, numel / parts, bytes.data());
  for (std::thread& thread : others) thread.join();
  return bytes;
}

int64_t bytes_moved(const Case& test) {
  int64_t bytes = 0;
  Specs inputs;
  for (const Input& input : test.inputs) {
    inputs.push_back(input.spec);
    bytes += input.spec.numel() * size_bytes(input.spec.dtype);
  }
  for (const TensorSpec& output : test.spec(inputs)) {
    bytes += output.numel() * size_bytes(output.dtype);
  }
  return bytes;
}

}  // namespace tilekernels::cases
