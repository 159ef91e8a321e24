// The machine model as the vector-core layer calls it: one function an instruction, on untyped
// registers. Its state is the core that the calling thread runs.
#pragma once

#include "runtime/ascend/lanes.h"

namespace tilekernels::ascend::model {

enum class Pipe : int32 { kS, kV, kMte2, kMte3 };
constexpr int32 kNumPipes = 4;
enum class Bar : int32 { kVstVld, kVldVst, kVstVst, kVvAll };
constexpr int32 kMaxVfBytes = 256;  // of a queued vector function's arguments

/// 256 bytes and, a bit a byte, which of them are undefined (poison).
class RegBits {
 public:
  RegBits();
  ~RegBits();
  RegBits(const RegBits&) = delete;
  RegBits& operator=(const RegBits&) = delete;

  alignas(64) uint8 bytes[kVectorBytes];
  uint64 poison[kVectorBytes / 64];
};

/// A bit a byte of a register; a lane is active by its lowest byte's bit. Knows the width of the
/// lanes that it was made for.
class Mask {
 public:
  Mask();
  ~Mask();
  Mask(const Mask& other);
  Mask& operator=(const Mask& other) = default;

  uint64 bits[kVectorBytes / 64] = {};
  int32 lane_bytes = 0;  // 0: never written
};

struct UbPlace {
  int32 buffer = -1;  // which allocation it came from
  int32 offset = 0;   // bytes from the start of UB
};
/// The tail of less than a block that an unaligned stream has not yet stored.
struct Stream {
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  uint8 bytes[kBlockBytes];
  int32 count = 0;
  UbPlace place{};
};

UbPlace moved(UbPlace place, int64 bytes);

struct Copy {
  int64 rows;
  int64 row_bytes;
  int64 gm_pitch;
  int64 ub_pitch;
  bool compact;
};

int64 block_idx();
int64 block_num();
void set_ctrl(int32 bit, int32 value);
UbPlace ub_alloc(const char* name, int64 bytes, int32 readable_tail_bytes);
void copy_in(UbPlace to, const void* from, const Copy& copy);
void copy_out(void* to, UbPlace from, const Copy& copy);
void set_flag(Pipe from, Pipe to, int32 id);
void wait_flag(Pipe from, Pipe to, int32 id);
void lock(Pipe pipe, int32 id);
void unlock(Pipe pipe, int32 id);
void pipe_barrier(Pipe pipe);
void barrier_all();
void scalar_read(UbPlace place, void* value, int32 bytes);
void scalar_write(UbPlace place, const void* value, int32 bytes);
void scalar_read_gm(const void* from, void* value, int32 bytes);
uint16 trips(int64 count);
void enqueue_vf(const char* name, void (*run)(const void*), const void* stored, int64 bytes);

Mask pset(int32 lane_bytes, int32 count);
Mask plt(int32 lane_bytes, uint32& count);
void mask_and(Mask& d, const Mask& a, const Mask& b, const Mask& m);
void mask_or(Mask& d, const Mask& a, const Mask& b, const Mask& m);
void mask_not(Mask& d, const Mask& a, const Mask& m);

void load(int32 dist, int32 lane_bytes, RegBits& d, UbPlace ub);
void load_deintlv(int32 lane_bytes, RegBits& d0, RegBits& d1, UbPlace ub);
void load_unaligned(int32 lane_bytes, RegBits& d, UbPlace ub);
void gather(int32 lane_bytes, RegBits& d, UbPlace ub, const RegBits& idx, const Mask& m);
void store(int32 dist, int32 lane_bytes, UbPlace ub, const RegBits& s, const Mask& m);
void store_first(int32 lane_bytes, UbPlace ub, const RegBits& s);
void store_intlv(int32 lane_bytes, UbPlace ub, const RegBits& a, const RegBits& b);
void store_unaligned(int32 lane_bytes, UbPlace ub, const RegBits& s, uint32 count);
void scatter(int32 lane_bytes, UbPlace ub, const RegBits& s, const RegBits& idx, const Mask& m);
void mem_bar(Bar bar);

void binary(Inst inst, Lane lane, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m);
void binary_scalar(Inst inst, Lane lane, RegBits& d, const RegBits& a, const void* b,
                   const Mask& m);
void unary(Inst inst, Lane lane, RegBits& d, const RegBits& a, const Mask& m);
void multiply_add(Lane lane, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m);
void multiply_wide(RegBits& low, RegBits& high, const RegBits& a, const RegBits& b, const Mask& m);
void shift(Inst inst, Lane lane, RegBits& d, const RegBits& a, int32 count, const Mask& m);
void divide(bool fast, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m);
void square_root(bool fast, RegBits& d, const RegBits& a, const Mask& m);
void fast_function(Inst inst, RegBits& d, const RegBits& a, const Mask& m);
void compare(int32 cmp, Lane lane, Mask& d, const RegBits& a, const RegBits& b, const Mask& m);
void compare_scalar(int32 cmp, Lane lane, Mask& d, const RegBits& a, const void* b, const Mask& m);
void select(int32 lane_bytes, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m);
void reduce(Inst inst, Lane lane, RegBits& d, const RegBits& a, const Mask& m);
void block_max(Lane lane, RegBits& d, const RegBits& a, const Mask& m);
void duplicate(int32 lane_bytes, RegBits& d, const void* value, const Mask& m);
void duplicate_lane0(int32 lane_bytes, RegBits& d, const RegBits& s, const Mask& m);
void move(RegBits& d, const RegBits& s);
void arange(Lane lane, RegBits& d, const void* start);
void interleave(int32 lane_bytes, RegBits& d0, RegBits& d1, const RegBits& a, const RegBits& b);
void deinterleave(int32 lane_bytes, RegBits& d0, RegBits& d1, const RegBits& a, const RegBits& b);
void permute(int32 lane_bytes, RegBits& d, const RegBits& s, const RegBits& idx);
void squeeze(int32 lane_bytes, RegBits& d, const RegBits& s, const Mask& m, bool count_bytes);
void histogram(bool upper, RegBits& d, const RegBits& s, const Mask& m);
void clear_ar();
void stream_store(UbPlace ub, const RegBits& s, Stream& stream);
void stream_flush(Stream& stream);
void convert(Lane to, Lane from, int32 part, Round round, Saturate saturate, RegBits& d,
             const RegBits& s, const Mask& m);

}  // namespace tilekernels::ascend::model
