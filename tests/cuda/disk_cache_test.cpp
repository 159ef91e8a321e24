// The kernels on disk: whatever happens to the folder, the kernel is right, and compiled once.
#include "runtime/jit/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <mutex>
#include <thread>

#include "cuda/children.h"
#include "cuda/fake.h"
#include "paths.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {

using namespace jit;

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string key_for(int i) {
  return "op gather\ntext d1\ncompiler nvrtc 13.0\noptions -arch=sm_90a -DTILEKERNELS_PDL=0 "
         "-DTILEKERNELS_SHAPE={" +
         std::to_string(i) + "}\n";
}

std::string cubin_for(int i) { return std::string(3000 + static_cast<size_t>(i), 'c'); }

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_hook([this](std::string_view sentence) {
      const std::lock_guard lock(mutex_);
      warnings_.emplace_back(sentence);
    });
  }
  void TearDown() override { set_log_hook({}); }

  // The kernel of key i, counting compilations.
  Compiled get(int i = 0, milliseconds compile_time = milliseconds(0)) {
    return find_or_make(folder(), key_for(i), [&] {
      ++made_;
      std::this_thread::sleep_for(compile_time);
      return Compiled{cubin_for(i), {40, 0, 0, 1024}};
    });
  }
  bool is_right(int i = 0, milliseconds compile_time = milliseconds(0)) {
    const Compiled got = get(i, compile_time);
    return got.binary == cubin_for(i) && got.resources.registers == 40 &&
           got.resources.shared_bytes == 1024;
  }
  std::string only_file() const {
    const std::vector<std::string> files = folder_.files(".kernel");
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files[0];
  }
  std::string folder() const { return folder_.path() + "/tilekernels"; }

  struct AlsoThere : Folder {
    std::vector<std::string> files(const std::string& end) const {
      std::vector<std::string> names;
      if (!fs::exists(path() + "/tilekernels")) return names;
      for (const auto& entry : fs::directory_iterator(path() + "/tilekernels")) {
        if (entry.path().string().ends_with(end)) names.push_back(entry.path().string());
      }
      return names;
    }
  };

  AlsoThere folder_;
  std::atomic<int>& made_ = *fake::make_shared_memory<std::atomic<int>>();
  std::atomic<int>& waiting_ = *fake::make_shared_memory<std::atomic<int>>();
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(DiskCacheTest, KeepsAKernel) {
  EXPECT_TRUE(is_right());
  EXPECT_TRUE(is_right());
  EXPECT_EQ(made_, 1);
  EXPECT_TRUE(is_right(1));
  EXPECT_EQ(made_, 2);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DiskCacheTest, NeitherTimesNorPlacesMatter) {
  get();
  const std::string file = only_file();
  fs::last_write_time(file, fs::file_time_type::min());
  EXPECT_TRUE(is_right());
  fs::rename(folder(), folder() + "-elsewhere");
  EXPECT_TRUE(find_or_make(folder() + "-elsewhere", key_for(0), []() -> Compiled {
                throw std::logic_error("compiled");
              }).binary == cubin_for(0));
  EXPECT_EQ(made_, 1);
}

TEST_F(DiskCacheTest, ATruncatedFileIsMadeAgain) {
  get();
  const std::string file = only_file();
  const auto size = fs::file_size(file);
  int expected = 1;
  for (const uintmax_t left : {uintmax_t{0}, uintmax_t{1}, uintmax_t{63}, uintmax_t{64},
                               uintmax_t{200}, size / 2, size - 1}) {
    fs::resize_file(file, left);
    EXPECT_TRUE(is_right()) << left;
    EXPECT_EQ(made_, ++expected) << left;
    EXPECT_EQ(fs::file_size(file), size);
  }
  fs::resize_file(file, size + 1);
  EXPECT_TRUE(is_right());
  EXPECT_EQ(made_, ++expected);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], "the cached kernel " + file + " is damaged: compiling it again");
}

TEST_F(DiskCacheTest, AnAlteredByteAnywhereIsSeen) {
  get();
  const std::string file = only_file();
  const auto size = static_cast<std::streamoff>(fs::file_size(file));
  for (std::streamoff place = 0; place < size; ++place) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(place);
    const int byte = stream.get();
    for (const int bit : {0, 7}) {
      stream.seekp(place);
      stream.put(static_cast<char>(byte ^ 1 << bit));
      stream.flush();
      ASSERT_FALSE(read_cache_file(file)) << "byte " << place << " bit " << bit;
    }
    stream.seekp(place);
    stream.put(static_cast<char>(byte));
  }
  EXPECT_TRUE(read_cache_file(file));
}

TEST_F(DiskCacheTest, AFileOfAnotherKeyIsNotTaken) {
  get(0);
  get(1);
  fs::copy_file(cache_file(folder(), key_for(1)), cache_file(folder(), key_for(0)),
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(is_right(0));
  EXPECT_EQ(made_, 3);
}

TEST_F(DiskCacheTest, SixteenThreadsCompileOnce) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] { good += is_right(0, milliseconds(50)) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16);
  EXPECT_EQ(made_, 1);
}

TEST_F(DiskCacheTest, SixteenProcessesCompileOnce) {
  EXPECT_EQ(run_children(16, waiting_, [&] { return is_right(0, milliseconds(50)); }), 16);
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(folder_.files(".kernel").size(), 1u);
  EXPECT_EQ(folder_.files("").size(), 2u);  // and the lock
}

TEST_F(DiskCacheTest, AProcessThatDiesWhileCompilingBlocksNobody) {
  std::atomic<int>& compiling = *fake::make_shared_memory<std::atomic<int>>();
  const pid_t child = start_child([&] {
    find_or_make(folder(), key_for(0), [&]() -> Compiled {
      compiling = 1;
      for (;;) pause();
    });
    return true;
  });
  while (compiling == 0) usleep(100);
  std::thread killer([child] {
    usleep(20000);
    kill(child, SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_right());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLockPatience / 2);
  killer.join();
  EXPECT_FALSE(ended_well(child));
  EXPECT_EQ(made_, 1);
}

TEST_F(DiskCacheTest, AProcessThatIsStoppedWhileCompilingIsWaitedForUpToALimit) {
  std::atomic<int>& compiling = *fake::make_shared_memory<std::atomic<int>>();
  const pid_t child = start_child([&] {
    find_or_make(folder(), key_for(0), [&]() -> Compiled {
      compiling = 1;
      for (;;) pause();
    });
    return true;
  });
  while (compiling == 0) usleep(100);
  const Compiled got = find_or_make(
      folder(), key_for(0),
      [] {
        return Compiled{"alone", {}};
      },
      milliseconds(30));
  EXPECT_EQ(got.binary, "alone");
  kill(child, SIGKILL);
  EXPECT_FALSE(ended_well(child));
}

TEST_F(DiskCacheTest, AChildForkedWhileItsParentCompilesKeepsNoLock) {
  pid_t child = 0;
  find_or_make(folder(), key_for(0), [&] {
    child = start_child([] {
      for (;;) pause();
      return true;
    });
    return Compiled{cubin_for(0), {}};
  });
  fs::remove(only_file());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_right());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLockPatience / 2);
  kill(child, SIGKILL);
  ended_well(child);
}

TEST_F(DiskCacheTest, KillingWritersLeavesNothingWrong) {
  constexpr int kKeys = 400;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = start_child([&] {
      for (int i = 0; i < kKeys; ++i) get(i);
      return true;
    });
    usleep(static_cast<useconds_t>(1500 * round));
    kill(child, SIGKILL);
    ended_well(child);
    for (const std::string& file : folder_.files(".kernel")) {
      EXPECT_TRUE(read_cache_file(file)) << file;
      fs::remove(file);
    }
  }
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(is_right(i));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeCostsACompilationAndOneWarning) {
  std::ofstream(folder_.path() + "/tilekernels") << "a file where the folder should be";
  EXPECT_TRUE(is_right(0));
  EXPECT_TRUE(is_right(0));
  EXPECT_TRUE(is_right(1));
  EXPECT_EQ(made_, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], "the kernel cache cannot use " + folder() +
                              " (Not a directory): kernels are compiled by each process");
}

// A body run by a user who is nobody, for whom permissions count.
bool as_nobody(const std::function<bool()>& body) {
  return runs_well([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return false;
    return body();
  });
}

TEST_F(DiskCacheTest, AReadOnlyFolderIsReadAndNotWritten) {
  get(0);
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(folder(), fs::perms(0555));
  for (const std::string& file : folder_.files("")) fs::permissions(file, fs::perms(0444));
  EXPECT_TRUE(as_nobody([&] {
    const bool read = is_right(0) && made_ == 1 && warnings_.empty();
    const bool compiled = is_right(1) && is_right(1) && made_ == 3;
    return read && compiled && warnings_.size() == 1 &&
           warnings_[0].find("(Permission denied)") != std::string::npos;
  }));
  fs::permissions(folder(), fs::perms(0755));
  EXPECT_EQ(folder_.files(".kernel").size(), 1u);
}

TEST_F(DiskCacheTest, AnUnreadableFolderCostsACompilation) {
  get(0);
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(folder(), fs::perms(0000));
  EXPECT_TRUE(as_nobody([&] { return is_right(0) && made_ == 2 && warnings_.size() == 1; }));
  fs::permissions(folder(), fs::perms(0755));
}

TEST_F(DiskCacheTest, AFullDiskLeavesNoPartialFile) {
  EXPECT_TRUE(runs_well([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    return is_right(0) && is_right(0) && made_ == 2 && warnings_.size() == 1 &&
           warnings_[0].find("(File too large)") != std::string::npos;
  }));
  EXPECT_EQ(folder_.files("").size(), 1u);  // the lock
  EXPECT_TRUE(is_right(0));
  EXPECT_EQ(folder_.files(".kernel").size(), 1u);
}

TEST_F(DiskCacheTest, NoHomeMeansNoCacheAndOneWarning) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(find_or_make("", key_for(0), [] { return Compiled{"made", {}}; }).binary, "made");
  }
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(DiskCacheTest, AFailedCompilationIsTheCallersAndIsTriedAgain) {
  const auto broken = []() -> Compiled { throw BackendError("[gather] no"); };
  EXPECT_THROW(find_or_make(folder(), key_for(0), broken), BackendError);
  EXPECT_TRUE(is_right(0));
}

TEST_F(DiskCacheTest, ListsAndClearsItsOwnFilesOnly) {
  const std::string before = cache_dir();
  set_cache_dir(folder());
  EXPECT_TRUE(list_cache().empty());
  EXPECT_EQ(clear_cache(), 0);
  get(7);
  get(8);
  fs::resize_file(cache_file(folder(), key_for(8)), 100);
  const std::string stranger = folder() + "/stranger.txt";
  std::ofstream(stranger) << "not ours";
  std::ofstream(cache_file(folder(), key_for(9)) + ".working-1-0") << "left by a dead process";
  const std::vector<CompiledKernel> kernels = list_cache();
  ASSERT_EQ(kernels.size(), 2u);
  const CompiledKernel& whole = kernels[0].op.empty() ? kernels[1] : kernels[0];
  const CompiledKernel& damaged = kernels[0].op.empty() ? kernels[0] : kernels[1];
  EXPECT_EQ(whole.op, "gather");
  EXPECT_EQ(whole.arch, "sm_90a");
  EXPECT_EQ(whole.constants, "PDL=0 SHAPE={7}");
  EXPECT_EQ(whole.compiler, "nvrtc 13.0");
  EXPECT_EQ(whole.size_bytes, 3007);
  EXPECT_EQ(whole.registers, 40);
  EXPECT_EQ(whole.path, cache_file(folder(), key_for(7)));
  EXPECT_EQ(damaged.op, "");
  EXPECT_EQ(clear_cache(), 2);
  EXPECT_EQ(folder_.files(""), std::vector<std::string>{stranger});
  set_cache_dir(before);
}

TEST(CacheDir, ComesFromTheEnvironment) {
  if (paths::kTool.empty()) GTEST_SKIP() << "absent: the command";
  // The start value is read once, so each reading is a process of its own.
  const auto reads = [](const std::function<void()>& prepare, const std::string& expected) {
    return runs_well([&] {
      for (const char* name : {"TILEKERNELS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
      prepare();
      FILE* const tool = popen((paths::kTool + " cache list").c_str(), "r");
      char line[256] = "";
      const bool printed = fgets(line, sizeof(line), tool) != nullptr;
      return pclose(tool) == 0 && printed && line == "0 kernels, 0 KiB in " + expected + "\n";
    });
  };
  const auto set = [](const char* name, const char* value) { setenv(name, value, 1); };
  EXPECT_TRUE(reads([&] { set("TILEKERNELS_CACHE_DIR", "/no/a"), set("HOME", "/no"); }, "/no/a"));
  EXPECT_TRUE(
      reads([&] { set("XDG_CACHE_HOME", "/no/x"), set("HOME", "/no"); }, "/no/x/tilekernels"));
  EXPECT_TRUE(reads([&] { set("HOME", "/no"); }, "/no/.cache/tilekernels"));
  EXPECT_TRUE(reads([&] { set("XDG_CACHE_HOME", "relative"), set("HOME", "/no"); },
                    "/no/.cache/tilekernels"));
  EXPECT_TRUE(reads([] {}, "no folder (HOME is not set)"));
}

}  // namespace
}  // namespace tilekernels::cuda
