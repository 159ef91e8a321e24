// What a conversion leaves behind when it is killed, stopped, refused, out of space or not alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint_files.h"
#include "errors.h"
#include "paths.h"
#include "sanitized.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

using io::StDType;

constexpr int kNumShards = 3;
constexpr char kPartial[] = ".out.tilekernels-partial";

std::string shard_name(int i) {
  return "model-0000" + std::to_string(i + 1) + "-of-00003.safetensors";
}

// Calls a function at the beginning and after every block.
class Hooks : public Progress {
 public:
  std::function<void()> on_begin;
  std::function<bool()> on_block;
  void begin(std::string_view, int64_t) override {
    if (on_begin) on_begin();
  }
  bool cancelled() override { return on_block && on_block(); }
};

// The command's exit status, and what it printed.
std::pair<int, std::string> tool(const std::string& arguments) {
  const std::string command = paths::kTool + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char bytes[4096];
  for (size_t n; (n = ::fread(bytes, 1, sizeof bytes, pipe)) > 0;) text.append(bytes, n);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

class Safety : public testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json index;
    for (int s = 0; s < kNumShards; ++s) {
      const std::string weight = "layer." + std::to_string(s) + ".weight";
      write_checkpoint(folder_, "in/" + shard_name(s),
                       {bf16_tensor(weight, {260, 300}, static_cast<uint64_t>(s)),
                        f32_tensor("b" + std::to_string(s), {5})});
      index["weight_map"][weight] = shard_name(s);
      index["weight_map"]["b" + std::to_string(s)] = shard_name(s);
    }
    folder_.write("in/model.safetensors.index.json", index.dump());
    folder_.write("in/config.json", "{}");
    folder_.write("in/tokenizer.json", "{}");
    options_.to = CheckpointFormat::kDeepseekFp8;
  }

  std::string in() const { return folder_ / "in"; }
  std::string out() const { return folder_ / "out"; }

  std::string bytes_of_output(const std::string& name) const {
    std::string all;
    for (const std::string& file : folder_.list(name)) {
      all += file + "\n" + folder_.read(name + "/" + file);
    }
    return all;
  }
  std::string clean_run() const {
    convert(in(), folder_ / "clean", options_);
    return bytes_of_output("clean");
  }
  // Runs a conversion in a child that kills itself once the first shard is done.
  void run_killed() const {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Hooks hooks;
      const std::string done = folder_ / (std::string(kPartial) + "/done/" + shard_name(0));
      hooks.on_block = [&] {
        if (std::filesystem::exists(done)) ::kill(::getpid(), SIGKILL);
        return false;
      };
      try {
        convert(in(), out(), options_, &hooks);
      } catch (...) {
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_FALSE(folder_.exists("out"));
    EXPECT_TRUE(folder_.exists(kPartial));
  }

  TestFolder folder_;
  ConvertOptions options_;
};

TEST_F(Safety, B62AKilledRunIsResumedWithTheSameBytes) {
  const std::string clean = clean_run();
  run_killed();
  ConvertOptions options = options_;
  options.resume = true;
  const ConvertReport report = convert(in(), out(), options);
  EXPECT_EQ(report.num_resumed, 1);
  EXPECT_TRUE(bytes_of_output("out") == clean);
  EXPECT_EQ(folder_.list(), (std::vector<std::string>{"clean", "in", "out"}));
  // Figures of shards that were taken over are reported too.
  for (const TensorReport& tensor : report.tensors) {
    EXPECT_EQ(tensor.error.has_value(), tensor.action == TensorAction::kQuantized) << tensor.name;
  }
}

TEST_F(Safety, B62AKilledRunIsRepeatedWithTheSameBytes) {
  const std::string clean = clean_run();
  run_killed();
  EXPECT_EQ(convert(in(), out(), options_).num_resumed, 0);
  EXPECT_TRUE(bytes_of_output("out") == clean);
  EXPECT_EQ(folder_.list(), (std::vector<std::string>{"clean", "in", "out"}));
}

TEST_F(Safety, ADamagedShardIsNotTakenOver) {
  const std::string clean = clean_run();
  run_killed();
  const std::string file = std::string(kPartial) + "/out/" + shard_name(0);
  std::string bytes = folder_.read(file);
  bytes[bytes.size() - 100] ^= 1;
  folder_.write(file, bytes);
  ConvertOptions options = options_;
  options.resume = true;
  EXPECT_EQ(convert(in(), out(), options).num_resumed, 0);
  EXPECT_TRUE(bytes_of_output("out") == clean);
}

TEST_F(Safety, DamagedNotesAreNotTrusted) {
  const std::string clean = clean_run();
  run_killed();
  folder_.write(std::string(kPartial) + "/done/" + shard_name(0), "{\"bytes\":");
  ConvertOptions options = options_;
  options.resume = true;
  EXPECT_EQ(convert(in(), out(), options).num_resumed, 0);
  EXPECT_TRUE(bytes_of_output("out") == clean);
}

TEST_F(Safety, ResumeRefusesOtherOptions) {
  run_killed();
  ConvertOptions options = options_;
  options.resume = true;
  options.ignore = {"layer.1.weight"};
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { convert(in(), out(), options); }),
                  "resume must continue the same input and options"));
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(Safety, ResumeRefusesAChangedConfig) {
  run_killed();
  folder_.write("in/config.json", R"({"model_type":"other"})");
  ConvertOptions options = options_;
  options.resume = true;
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { convert(in(), out(), options); }),
                  "resume must continue the same input and options"));
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(Safety, AStoppedRunPublishesNothing) {
  Hooks hooks;
  hooks.on_block = [] { return true; };
  EXPECT_THROW(convert(in(), out(), options_, &hooks), Cancelled);
  EXPECT_EQ(folder_.list(), std::vector<std::string>{"in"});

  // With a finished shard the work is kept, and the message says how to go on.
  hooks.on_block = [&] { return folder_.exists(std::string(kPartial) + "/done/" + shard_name(0)); };
  const std::string what = error_of<Cancelled>([&] { convert(in(), out(), options_, &hooks); });
  EXPECT_TRUE(has(what, "finished shards are kept in")) << what;
  EXPECT_FALSE(folder_.exists("out"));
  ConvertOptions options = options_;
  options.resume = true;
  EXPECT_EQ(convert(in(), out(), options).num_resumed, 1);
}

TEST_F(Safety, ARunningOutputIsNotTakenByAnother) {
  Hooks hooks;
  std::string what;
  hooks.on_begin = [&] { what = error_of<BackendError>([&] { convert(in(), out(), options_); }); };
  convert(in(), out(), options_, &hooks);
  EXPECT_TRUE(has(what, "must be free, got another run into the same output")) << what;
  EXPECT_TRUE(bytes_of_output("out") == clean_run());
}

TEST_F(Safety, ConcurrentRunsGiveOneCompleteOutput) {
  const std::string clean = clean_run();
  std::atomic<int> num_done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        convert(in(), out(), options_);
        ++num_done;
      } catch (const std::exception&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(num_done, 1);
  EXPECT_TRUE(bytes_of_output("out") == clean);
  EXPECT_FALSE(folder_.exists(kPartial));
}

TEST_F(Safety, ManyShardsAreConvertedAtOnceWithTheSameBytes) {
  constexpr int kMany = 7;
  for (int s = 0; s < kMany; ++s) {
    const std::string n = std::to_string(s);
    write_checkpoint(folder_, "many/m" + n + ".safetensors",
                     {bf16_tensor(n + ".weight", {200, 300}, static_cast<uint64_t>(s)),
                      f32_tensor(n + ".bias", {1000})});
  }
  const auto run = [&](int num_threads, const std::string& to, Progress* progress) {
    set_num_threads(num_threads);
    const ConvertReport report = convert(folder_ / "many", folder_ / to, options_, progress);
    set_num_threads(0);
    EXPECT_EQ(report.tensors.size(), 2u * kMany);
    EXPECT_GT(report.tensors.at(0).error->relative_rms, 0);
    return bytes_of_output(to);
  };
  EXPECT_TRUE(run(1, "one", nullptr) == run(3, "three", nullptr));

  // A failure of one of them ends all, and is the one that is told.
  std::filesystem::resize_file(folder_ / "many/m3.safetensors", 100);
  EXPECT_THROW(run(3, "out", nullptr), DataError);
  EXPECT_FALSE(folder_.exists("out"));
  write_checkpoint(folder_, "many/m3.safetensors", {f32_tensor("3.bias", {1000})});
  Hooks hooks;
  std::atomic<int> num_blocks{0};
  hooks.on_block = [&] { return ++num_blocks > 4; };
  EXPECT_THROW(run(3, "out", &hooks), Cancelled);
  set_num_threads(0);
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(Safety, ADryRunFindsWhatARunWouldRefuse) {
  ConvertOptions dry = options_;
  dry.dry_run = true;
  // Another run.
  Hooks hooks;
  std::string what;
  hooks.on_begin = [&] { what = error_of<BackendError>([&] { convert(in(), out(), dry); }); };
  convert(in(), out(), options_, &hooks);
  EXPECT_TRUE(has(what, "must be free, got another run into the same output")) << what;
  std::filesystem::remove_all(out());

  // Unfinished work of other options.
  run_killed();
  dry.resume = true;
  dry.ignore = {"layer.1.weight"};
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { convert(in(), out(), dry); }),
                  "resume must continue the same input and options"));
  EXPECT_TRUE(folder_.exists(kPartial));
}

TEST_F(Safety, ADryRunFindsTooLittleRoom) {
  const auto free = std::filesystem::space(folder_.path()).available;
  if (free >= uint64_t{8} << 40) GTEST_SKIP() << "no file may be as large as the room here";
  // Zeros that take none in the input
  const auto rows = static_cast<int64_t>(free / 3 >> 20) + 1;
  io::Header header;
  header.tensors = {{"big", StDType::kBF16, {rows, 1 << 20}, 0, 0}};
  io::SafetensorsWriter(folder_.path(), "big.safetensors", header).publish(false);
  ConvertOptions wide = options_;
  wide.dry_run = true;
  wide.to = CheckpointFormat::kF32;
  const std::string what = error_of<BackendError>(
      [&] { convert(folder_ / "big.safetensors", folder_ / "wide.safetensors", wide); });
  EXPECT_TRUE(has(what, "free space must be at least")) << what;
}

TEST_F(Safety, ADryRunOfResumeListsWhatIsLeft) {
  run_killed();
  const auto before = folder_.list(std::string(kPartial) + "/out");
  ConvertOptions dry = options_;
  dry.dry_run = true;
  const auto names = [&] {
    std::vector<std::string> listed;
    const ConvertReport report = convert(in(), out(), dry);
    int64_t bytes = 0;
    for (const OutputFile& file : report.files) {
      listed.push_back(file.name);
      bytes += file.bytes;
    }
    EXPECT_EQ(report.bytes_written, bytes);
    EXPECT_GT(report.bytes_read, 0);
    return listed;
  };
  const std::vector<std::string> others = {"model.safetensors.index.json", "config.json",
                                           "tokenizer.json"};
  std::vector<std::string> all = {shard_name(0), shard_name(1), shard_name(2)};
  all.insert(all.end(), others.begin(), others.end());
  EXPECT_EQ(names(), all);
  dry.resume = true;
  all.erase(all.begin());
  EXPECT_EQ(names(), all);
  const auto shown =
      tool("convert " + in() + " " + out() + " --to deepseek-fp8 --resume --dry-run");
  EXPECT_EQ(shown.first, 0) << shown.second;
  EXPECT_FALSE(has(shown.second, "would write " + shard_name(0))) << shown.second;
  EXPECT_TRUE(has(shown.second, "would write " + shard_name(1))) << shown.second;
  EXPECT_TRUE(has(shown.second, "1 finished shard would be taken over")) << shown.second;
  // A rank writes its own shards alone.
  dry.num_ranks = 2;
  dry.rank = 1;
  EXPECT_EQ(names(), std::vector<std::string>{shard_name(1)});
  // Nothing was touched.
  EXPECT_EQ(folder_.list(std::string(kPartial) + "/out"), before);
  ConvertOptions options = options_;
  options.resume = true;
  EXPECT_EQ(convert(in(), out(), options).num_resumed, 1);
}

TEST_F(Safety, ResumingWhatIsFinishedSaysSo) {
  convert(in(), out(), options_);
  const std::string before = bytes_of_output("out");
  ConvertOptions options = options_;
  options.resume = true;
  const auto refusal = [&] {
    return error_of<std::invalid_argument>([&] { convert(in(), out(), options); });
  };
  EXPECT_TRUE(has(refusal(), "[convert] resume must find unfinished work, got \"")) << refusal();
  EXPECT_TRUE(has(refusal(), "/out\", where everything is there; --overwrite makes it anew"));
  options.resume = false;
  options.publish_only = true;
  EXPECT_TRUE(has(refusal(), "[convert] publish must find unfinished work, got \"")) << refusal();
  // What is not that is an output like any other.
  options = options_;
  options.resume = true;
  options.to = CheckpointFormat::kF32;
  EXPECT_TRUE(has(refusal(), "must not exist yet, unless it may be overwritten")) << refusal();
  options.to = options_.to;
  std::filesystem::remove(folder_ / "out/tokenizer.json");
  EXPECT_TRUE(has(refusal(), "must not exist yet, unless it may be overwritten")) << refusal();
  folder_.write("out/tokenizer.json", "{}");
  EXPECT_TRUE(bytes_of_output("out") == before);

  const std::string file = in() + "/" + shard_name(0);
  convert(file, folder_ / "x.safetensors", options_);
  const std::string of_file =
      error_of<std::invalid_argument>([&] { convert(file, folder_ / "x.safetensors", options); });
  EXPECT_TRUE(has(of_file, "where everything is there")) << of_file;
}

TEST_F(Safety, ExistingOutputsAreKept) {
  folder_.write("out/precious", "x");
  const auto refused = [&](const std::string& in, const std::string& out,
                           const ConvertOptions& options) {
    return error_of<std::invalid_argument>([&] { convert(in, out, options); });
  };
  EXPECT_TRUE(has(refused(in(), out(), options_), "must not exist yet"));
  ConvertOptions overwrite = options_;
  overwrite.overwrite = true;
  EXPECT_TRUE(has(refused(in(), out(), overwrite), "has no .safetensors file"));
  EXPECT_EQ(folder_.read("out/precious"), "x");
  folder_.write("out/old.safetensors", "x");
  convert(in(), out(), overwrite);
  EXPECT_FALSE(folder_.exists("out/precious"));
  EXPECT_TRUE(bytes_of_output("out") == clean_run());

  std::filesystem::create_directory(folder_ / "empty");
  convert(in(), folder_ / "empty/", options_);
  EXPECT_TRUE(bytes_of_output("empty") == bytes_of_output("out"));

  EXPECT_TRUE(has(refused(in(), in(), overwrite), "must not be the input"));
  EXPECT_TRUE(has(refused(in(), in() + "/../in", overwrite), "must not be the input"));
  EXPECT_TRUE(has(refused(in(), in() + "/sub", options_), "must not lie in each other"));
  std::filesystem::create_directories(folder_ / "outer/in");
  EXPECT_TRUE(has(refused(in(), folder_ / "absent/out", options_), "existing folder"));
  EXPECT_TRUE(has(refused(in(), folder_ / "x.safetensors", options_), "must be a folder"));
  EXPECT_TRUE(has(refused(in() + "/" + shard_name(0), folder_ / "x", options_),
                  "must end in .safetensors"));
  const std::string file = in() + "/" + shard_name(0);
  EXPECT_TRUE(has(refused(file, file, overwrite), "must not be the input"));
  std::filesystem::create_symlink("in", folder_ / "link");
  EXPECT_TRUE(has(refused(in(), folder_ / "link", overwrite), "must not be the input"));
  std::filesystem::create_symlink("empty", folder_ / "other_link");
  EXPECT_TRUE(has(refused(in(), folder_ / "other_link", overwrite), "must not be a link"));
}

// Unfinished work lies under longer names than the output's.
TEST_F(Safety, NamesThatTheFileSystemCannotHoldAreRefusedByRule) {
  const auto refused = [&](const std::string& name, const std::string& from) {
    return error_of<std::invalid_argument>([&] { convert(from, folder_ / name, options_); });
  };
  const std::string rule = "must have a name of at most 230 bytes, got \"";
  const std::string what = refused(std::string(231, 'n'), in());
  EXPECT_TRUE(has(what, "[convert] out " + rule)) << what;
  EXPECT_TRUE(has(what, ", a name of 231")) << what;
  const std::string file = in() + "/" + shard_name(0);
  EXPECT_TRUE(has(refused(std::string(240, 'n') + ".safetensors", file), rule));
  EXPECT_EQ(folder_.list(), std::vector<std::string>{"in"});
  convert(in(), folder_ / std::string(230, 'n'), options_);
  convert(file, folder_ / (std::string(218, 'm') + ".safetensors"), options_);
  ConvertOptions overwrite = options_;
  overwrite.overwrite = true;
  convert(in(), folder_ / std::string(230, 'n'), overwrite);

  const std::string long_shard = std::string(240, 's') + ".safetensors";
  std::filesystem::create_directory(folder_ / "long");
  std::filesystem::create_symlink(file, folder_ / "long/" + long_shard);
  const std::string shard =
      error_of<DataError>([&] { convert(folder_ / "long", out(), options_); });
  EXPECT_TRUE(has(shard, "names of shards must have at most 246 bytes")) << shard;
  const std::string deep = error_of<BackendError>(
      [&] { convert(in(), folder_ / (std::string(5000, 'd') + "/out"), options_); });
  EXPECT_TRUE(has(deep, "File name too long")) << deep;
  EXPECT_FALSE(has(deep, "filesystem error")) << deep;
}

TEST_F(Safety, ABytePathIsTakenAndShownEscaped) {
  const std::string odd = "o\xff\x9b";
  std::filesystem::rename(in(), folder_ / odd);
  const auto done = tool("convert '" + (folder_ / odd) + "' " + out() + " --to bf16 --json " +
                         (folder_ / "report.json"));
  EXPECT_EQ(done.first, 0) << done.second;
  EXPECT_TRUE(nlohmann::json::accept(folder_.read("report.json")));
  const auto shown = tool("inspect '" + (folder_ / odd) + "'");
  EXPECT_TRUE(has(shown.second, "o\\xff\\x9b: sharded folder")) << shown.second;
  const auto absent = tool("inspect '" + (folder_ / odd) + "\x9b'");
  EXPECT_TRUE(has(absent.second, "o\\xff\\x9b\\x9b: must be")) << absent.second;
}

TEST_F(Safety, B62AFullDiskIsAnErrorWithThePath) {
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not allowed here";
  }
  Hooks hooks;
  hooks.on_begin = [&] {  // after the check of free space, somebody else fills the disk
    std::ofstream(disk + "/filler") << std::string(900000, 'x');
  };
  EXPECT_TRUE(
      has(error_of<BackendError>([&] { convert(in(), disk + "/out", options_, &hooks); }), disk));
  EXPECT_FALSE(std::filesystem::exists(disk + "/out"));
  // And now there is no room from the beginning.
  const std::string what = error_of<BackendError>([&] { convert(in(), disk + "/x", options_); });
  EXPECT_TRUE(has(what, "free space must be at least")) << what;
  EXPECT_EQ(folder_.list("disk").size(), 1u + (folder_.exists("disk/.out.tilekernels-partial")));
  std::filesystem::remove(disk + "/filler");
  ConvertOptions options = options_;
  options.resume = true;
  convert(in(), disk + "/out", options);
  EXPECT_TRUE(bytes_of_output("disk/out") == clean_run());
  ::umount(disk.c_str());
}

// Runs `act` in a child and returns what it returned.
std::string in_child(const std::function<std::string()>& act) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe failed";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = act();
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST_F(Safety, AFileSizeLimitIsAnErrorWithThePath) {
  const std::string what = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{50000, 50000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return error_of<BackendError>([&] { convert(in(), out(), options_); });
  });
  EXPECT_TRUE(has(what, shard_name(0) + ".writing")) << what;
  EXPECT_TRUE(has(what, "File too large")) << what;
  EXPECT_EQ(folder_.list(), std::vector<std::string>{"in"});
}

TEST_F(Safety, AMissingPermissionIsAnErrorWithThePath) {
  namespace fs = std::filesystem;
  fs::create_directory(folder_ / "closed");
  const std::string what = in_child([&] {
    constexpr fs::perms kRead = fs::perms::owner_read | fs::perms::owner_exec |
                                fs::perms::group_read | fs::perms::group_exec |
                                fs::perms::others_read | fs::perms::others_exec;
    fs::permissions(folder_ / "closed", kRead);
    fs::permissions(folder_.path(), kRead, fs::perm_options::add);
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return std::string("setresuid");
    ConvertOptions dry = options_;
    dry.dry_run = true;
    const auto closed = [&](const ConvertOptions& options) {
      return error_of<BackendError>([&] { convert(in(), folder_ / "closed/out", options); });
    };
    return closed(options_) + "\n" + closed(dry);
  });
  EXPECT_TRUE(has(what, "closed/.out.tilekernels-partial: mkdir failed: Permission denied"))
      << what;
  EXPECT_TRUE(has(what, "closed: a test for writing failed: Permission denied")) << what;
}

TEST_F(Safety, RanksShareTheWorkAndAnotherCallPublishes) {
  const std::string clean = clean_run();
  ConvertOptions publish = options_;
  publish.publish_only = true;
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { convert(in(), out(), publish); }),
                  "publish must find the work of ranks"));
  ConvertOptions rank = options_;
  rank.num_ranks = 2;
  convert(in(), out(), rank);
  EXPECT_FALSE(folder_.exists("out"));
  const std::string early = error_of<DataError>([&] { convert(in(), out(), publish); });
  EXPECT_TRUE(has(early, "[convert] publish must find all 3 shards finished in ")) << early;
  EXPECT_TRUE(has(early, "got 2 of them; missing or damaged: \"" + shard_name(1) +
                             "\"; run their shares again with --shard I/N --resume"))
      << early;
  EXPECT_FALSE(has(early, "--resume continues")) << early;
  publish.dry_run = true;
  EXPECT_EQ(error_of<DataError>([&] { convert(in(), out(), publish); }), early);
  publish.dry_run = false;
  rank.rank = 1;
  EXPECT_EQ(convert(in(), out(), rank).tensors.size(), 2u);
  EXPECT_EQ(convert(in(), out(), publish).num_resumed, kNumShards);
  EXPECT_TRUE(bytes_of_output("out") == clean);
  EXPECT_FALSE(folder_.exists(kPartial));
  rank.rank = 2;
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { convert(in(), out(), rank); }),
                  "rank must be in 0..1, got 2"));
}

TEST_F(Safety, TheCommandEndsWithAStatusAndAMessage) {
  const auto good = tool("convert " + in() + " " + out() + " --to deepseek-fp8 --json " +
                         (folder_ / "report.json"));
  EXPECT_EQ(good.first, 0) << good.second;
  EXPECT_TRUE(has(good.second, "layer.{0-2}.weight")) << good.second;
  EXPECT_TRUE(has(good.second, "is complete")) << good.second;
  const auto report = nlohmann::json::parse(folder_.read("report.json"));
  EXPECT_EQ(report["tensors"].size(), 6u);
  EXPECT_GT(report["tensors"][0]["relative_rms_error"], 0.0);
  EXPECT_GT(report["peak_memory_bytes"], 0);

  // DeepSeek's names for the way back.
  const auto back = tool("convert --input-fp8-hf-path " + out() + " --output-bf16-hf-path " +
                         (folder_ / "back") + " --quiet");
  EXPECT_EQ(back.first, 0) << back.second;
  EXPECT_EQ(back.second, "");
  EXPECT_EQ(read_checkpoint(folder_ / ("back/" + shard_name(0))).at("layer.0.weight").dtype,
            StDType::kBF16);
  const auto shown = tool("inspect " + out());
  EXPECT_EQ(shown.first, 0);
  EXPECT_TRUE(has(shown.second, "Nothing suspicious.")) << shown.second;
  EXPECT_TRUE(has(shown.second, "F8_E4M3 x F32 per 128x128")) << shown.second;

  const auto exists = tool("convert " + in() + " " + out() + " --to bf16");
  EXPECT_EQ(exists.first, 2);
  EXPECT_TRUE(has(exists.second, "must not exist yet")) << exists.second;
  const auto both =
      tool("convert " + in() + " " + out() + "2 --to bf16 --measure-error --no-measure-error");
  EXPECT_EQ(both.first, 2);
  EXPECT_TRUE(has(both.second, "--measure-error excludes --no-measure-error")) << both.second;
  const auto format = tool("convert " + in() + " " + out() + "2 --to fp8");
  EXPECT_EQ(format.first, 2);
  EXPECT_TRUE(has(format.second, "must be one of")) << format.second;
  write_checkpoint(folder_, "b.safetensors", {e4m3_tensor("b.weight", {2, 2})});
  const auto scale = tool("convert " + (folder_ / "b.safetensors") + " " +
                          (folder_ / "c.safetensors") + " --to bf16");
  EXPECT_EQ(scale.first, 1);
  EXPECT_TRUE(has(scale.second, "\"b.weight\"")) << scale.second;
  EXPECT_FALSE(folder_.exists("c.safetensors"));
}

// What a command prints on a terminal as its standard error, until it ends; `on_text` is told.
std::string shown_on_a_terminal(const std::string& command,
                                const std::function<void(pid_t, const std::string&)>& on_text) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return "";
  const std::string other_end = ::ptsname(terminal);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", ("exec " + command + " >/dev/null 2>" + other_end).c_str(),
            nullptr);
    ::_exit(127);
  }
  const int held = ::open(other_end.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::string text;
  char bytes[4096];
  for (bool ended = false;;) {
    pollfd ready{terminal, POLLIN, 0};
    if (::poll(&ready, 1, 20) > 0) {
      const ssize_t n = ::read(terminal, bytes, sizeof bytes);
      if (n > 0) text.append(bytes, static_cast<size_t>(n));
      on_text(child, text);
    } else if (ended) {
      break;  // and all that it wrote was read
    } else {
      ended = ::waitpid(child, nullptr, WNOHANG) == child;
    }
  }
  ::close(held);
  ::close(terminal);
  return text;
}

TEST_F(Safety, AMessageAfterTheBarHasALineOfItsOwn) {
  // Holes are read as zeros: large enough for a bar, and no time to make.
  const std::vector<int64_t> shape = {1 << 16, 4096};
  {
    io::Header header;
    header.tensors = {{"big", StDType::kF32, shape, 0, 0}};
    io::SafetensorsWriter(folder_.path(), "big.safetensors", header).publish(false);
  }
  bool interrupted = false;
  const std::string shown =
      shown_on_a_terminal(paths::kTool + " convert " + (folder_ / "big.safetensors") + " " +
                              (folder_ / "small.safetensors") + " --to bf16 --no-sync",
                          [&](pid_t child, const std::string& text) {
                            if (interrupted || !has(text, "convert [")) return;
                            interrupted = true;
                            ::kill(child, SIGINT);
                          });
  if (folder_.exists("small.safetensors")) GTEST_SKIP() << "it was faster than the signal";
  EXPECT_TRUE(has(shown, "\ntilekernels: [convert] stopped")) << shown;
}

// B61: a tensor of 520 MiB, with rows longer than any buffer, in a fixed amount of memory.
TEST_F(Safety, B61MemoryDoesNotGrowWithTheTensor) {
  const std::vector<int64_t> shape = {130, 4194304};
  {
    io::Header header;
    header.tensors = {{"big.weight", StDType::kF8E4M3, shape, 0, 0},
                      {"big.weight_scale_inv", StDType::kF32, {2, 32768}, 0, 0}};
    io::SafetensorsWriter writer(folder_.path(), "big.safetensors", header);
    writer.publish(false);  // all holes: zeros that take no room
  }
  const std::string command = "convert " + (folder_ / "big.safetensors") + " " +
                              (folder_ / "out.safetensors") + " --to bf16 --no-sync";
  // A signal in the middle leaves nothing.
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c",
            ("exec " + paths::kTool + " " + command + " >/dev/null 2>&1").c_str(), nullptr);
    ::_exit(127);
  }
  const std::string working = ".out.safetensors.tilekernels-partial/out/.out.safetensors.writing";
  for (int i = 0; i < 2000 && !folder_.exists(working); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(child, SIGTERM);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!folder_.exists("out.safetensors")) {  // else it was faster than the signal
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
    EXPECT_EQ(folder_.list(), (std::vector<std::string>{"big.safetensors", "in"}));
  }

  const auto done = tool(command + " --overwrite --quiet --json " + (folder_ / "report.json"));
  ASSERT_EQ(done.first, 0) << done.second;
  EXPECT_EQ(std::filesystem::file_size(folder_ / "out.safetensors") & ~uint64_t{4095},
            uint64_t{130} * 4194304 * 2);
  const auto report = nlohmann::json::parse(folder_.read("report.json"));
  if (!kSanitized) {
    EXPECT_LE(report["peak_memory_bytes"], 256 << 20);
  }
}

}  // namespace
}  // namespace tilekernels
