// A folder of a test's own, removed with it.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tilekernels {

class TestFolder {
 public:
  /// Under `parent`, or the system's folder for temporary files.
  explicit TestFolder(const std::string& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = parent + "/tilekernels_test_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp: " + pattern);
    path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }
  bool exists(const std::string& file) const { return std::filesystem::exists(path_ + "/" + file); }

  void write(const std::string& file, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + file).parent_path());
    std::ofstream(path_ + "/" + file, std::ios::binary) << bytes;
  }
  std::string read(const std::string& file) const {
    std::ostringstream bytes;
    bytes << std::ifstream(path_ + "/" + file, std::ios::binary).rdbuf();
    return bytes.str();
  }
  /// Names in the folder, hidden ones too, sorted.
  std::vector<std::string> list(const std::string& sub = "") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/" + sub)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace tilekernels
