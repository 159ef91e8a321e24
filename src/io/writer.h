// A safetensors file being written: under a working name until it is complete.
#pragma once

#include <string>

#include "io/safetensors.h"

namespace tilekernels::io {

/// Writes one file. Until `publish`, and after any failure, nothing exists under its final name;
/// the destructor removes the working file.
/// Errors: as `File`.
class SafetensorsWriter {
 public:
  /// Begins `folder`/`file_name` with the tensors of `header` in their order, as `build_header`
  /// lays them out. A working file that an earlier run left behind is replaced.
  SafetensorsWriter(const std::string& folder, const std::string& file_name, Header header);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const Header& header() const { return header_; }

  /// `count` bytes of the tensor at `index`, from byte `offset` of its data. Any order, from any
  /// thread; every byte is the caller's to write.
  void write(size_t index, int64_t offset, const void* from, int64_t count) const;

  /// Gives the complete file its name; with `durable` its bytes reach the disk first.
  void publish(bool durable);

 private:
  std::string final_path_;
  std::string working_path_;
  Header header_;
  File file_;
  bool published_ = false;
};

}  // namespace tilekernels::io
