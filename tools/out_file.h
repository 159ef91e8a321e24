// A file that a run ends with: opened before the run, so that no run is lost for a bad path.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

namespace tilekernels::tool {

class OutFile {
 public:
  /// An empty path stands for no file. Errors: std::runtime_error when it cannot be written.
  explicit OutFile(const std::string& path) : path_(path) {
    if (!is_wanted()) return;
    file_.open(path_);
    check();
  }
  bool is_wanted() const { return !path_.empty(); }
  void write(const std::string& text) {
    file_ << text;
    file_.close();
    check();
  }

 private:
  void check() const {
    if (!file_) throw std::runtime_error("cannot write " + path_);
  }
  std::string path_;
  std::ofstream file_;
};

}  // namespace tilekernels::tool
