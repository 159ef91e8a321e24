// Forked children for tests of races, limits and crashes, and folders of their own.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tilekernels::cuda {

/// Starts a child that runs the body and exits with 0 if it returns true.
inline pid_t start_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  bool good = false;
  try {
    good = body();
  } catch (const std::exception&) {
  }
  _exit(good ? 0 : 1);
}

/// Waits for a child; whether it ended well.
inline bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline bool runs_well(const std::function<bool()>& body) { return ended_well(start_child(body)); }

/// Runs the body in `count` children that begin together; how many ended well.
inline int run_children(int count, std::atomic<int>& waiting, const std::function<bool()>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_child([&] {
      ++waiting;
      while (waiting < count) usleep(100);
      return body();
    }));
  }
  int good = 0;
  for (const pid_t child : children) good += ended_well(child) ? 1 : 0;
  return good;
}

/// A new folder, removed at the end.
class Folder {
 public:
  Folder() {
    std::string made =
        (std::filesystem::temp_directory_path() / "tilekernels-test-XXXXXX").string();
    if (mkdtemp(made.data()) != nullptr) path_ = made;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

  /// Names of the files in it that end so, sorted by nothing.
  std::vector<std::string> files(const std::string& end = "") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(end)) names.push_back(entry.path().string());
    }
    return names;
  }

 private:
  std::string path_;
};

}  // namespace tilekernels::cuda
