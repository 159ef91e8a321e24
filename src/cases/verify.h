// Runs a case on a backend and judges it by the reference.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"

namespace tilekernels::cases {

/// What came of one case on one backend.
struct Verdict {
  bool passed = true;
  std::string failure{};   ///< case, backend, what differs, where, both values; several lines
  int64_t elements = 0;    ///< output elements compared
  int64_t mismatches = 0;  ///< elements that differ, in the first output that differs
};

/// Judges one case on any number of backends: the reference runs once, at the first call.
class Judge {
 public:
  /// The case must outlive the judge.
  explicit Judge(const Case& test) : test_(test) {}
  const Case& test() const { return test_; }

  /// Checks the case on a backend: the error of a bad call; else outputs equal to the reference's
  /// and to the hand-worked ones, bit for bit and over the whole storage, whatever it held before,
  /// with every tensor aligned and with every tensor one element off; guard bytes and inputs
  /// untouched; the same again from the allocating form; the fault, if one is expected; and that
  /// the forced backend is the one that ran.
  Verdict verify(Backend backend);

 private:
  void run_reference();
  void verify_results(Backend backend, Verdict& verdict);

  const Case& test_;
  bool has_run_ = false;
  std::vector<std::vector<uint8_t>> outputs_;  // the reference's
  std::string fault_;
};

/// The verdict of a judge of its own.
inline Verdict verify(const Case& test, Backend backend) { return Judge(test).verify(backend); }

/// Input bytes in memory of their own, outputs between guard bytes: one call's tensors. The case
/// must outlive them.
class Buffers {
 public:
  /// Outputs are filled with `prefill`, or with the bytes that the case says they start with; each
  /// tensor begins `offset` of its elements off a place aligned to 64 bytes. Throws what the case's
  /// `spec` throws.
  Buffers(const Case& test, uint8_t prefill, Device device = {}, int64_t offset = 0);

  const Views& inputs() const { return inputs_; }
  const Views& outputs() const { return outputs_; }
  /// Fills the outputs anew, for another call.
  void refill(uint8_t prefill) const;
  /// The storage bytes of output i.
  std::vector<uint8_t> output_bytes(size_t i) const;
  /// Empty, or the name of a tensor whose guard bytes or, for inputs, contents were written.
  std::string damaged() const;

 private:
  struct Block {
    std::string name;
    Tensor memory;
    int64_t begin;  // of the tensor, behind guard bytes
    int64_t size_bytes;
    std::vector<uint8_t> before;  // inputs: their bytes
  };
  // Adds the block of a tensor that holds `content`; the tensor.
  TensorView add_block(const std::string& name, const TensorSpec& spec,
                       const std::vector<uint8_t>& content, bool is_input);

  std::vector<uint8_t> start_of_output(size_t i, const TensorSpec& spec, uint8_t prefill) const;

  const Case& test_;
  int64_t offset_;
  Views inputs_;
  Views outputs_;
  std::vector<Block> blocks_;
};

}  // namespace tilekernels::cases
