// A safetensors file being written: under a working name until it is complete.
#include "io/writer.h"

#include <unistd.h>

#include <cassert>

namespace tilekernels::io {

SafetensorsWriter::SafetensorsWriter(const std::string& folder, const std::string& file_name,
                                     Header header)
    : final_path_(folder + "/" + file_name),
      working_path_(folder + "/." + file_name + ".writing"),
      header_(std::move(header)) {
  const std::string head = build_header(&header_);
  ::unlink(working_path_.c_str());
  file_ = File::create(working_path_);
  try {
    file_.write_at(0, head.data(), static_cast<int64_t>(head.size()));
    file_.resize(header_.file_bytes());
  } catch (...) {
    ::unlink(working_path_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!published_) ::unlink(working_path_.c_str());
}

void SafetensorsWriter::write(size_t index, int64_t offset, const void* from, int64_t count) const {
  const TensorEntry& tensor = header_.tensors[index];
  assert(offset >= 0 && count >= 0 && offset + count <= tensor.bytes());
  file_.write_at(header_.data_start + tensor.begin + offset, from, count);
}

void SafetensorsWriter::publish(bool durable) {
  if (durable) file_.sync();
  file_.close();
  rename_path(working_path_, final_path_);
  published_ = true;
}

}  // namespace tilekernels::io
