// tilekernels bench: times the bench cases beside copies of as many bytes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench_ascend.h"
#include "bench_cuda.h"
#include "cases/scope_exit.h"
#include "cases/verify.h"
#include "commands.h"
#include "copy.h"
#include "machine.h"
#include "out_file.h"
#include "plot.h"
#include "printable.h"
#include "select.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/version.h"
#include "timing.h"

namespace tilekernels::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> selectors;
  std::vector<std::string> backends;
  std::string target;
  int reps = 0;
  double min_time = 0.5;
  bool cold = false;
  bool json = false;
  bool host_cost = false;
  std::string cupti;
  std::string record;
  std::string plot;
};

// Above this many bytes moved the reference takes too long to judge a result.
constexpr int64_t kReferenceLimit = int64_t{512} << 20;
constexpr int kMinReps = 20;
constexpr int kMaxReps = 2000;
constexpr int kCudaReps = 50;
constexpr int kChoiceReps = 15;             // samples by which a copy is chosen
constexpr int64_t kMinPlotBytes = 1 << 20;  // smaller calls are bound by their start, not by memory
constexpr double kMinSampleUs = 50;         // shorter calls are repeated within a sample

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The median ratio of samples that were taken one after the other: a slow moment of the machine
// hits both.
double paired_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return quantile(ratios, 0.5);
}

// One thing to be timed, and its samples in microseconds a call.
struct Subject {
  std::function<void()> call;
  int calls_per_sample = 1;
  std::function<void()> restore{};  // what a call changes in place; not timed
  std::vector<double> samples{};
};

// Those of the subjects from `first` on.
std::vector<std::vector<double>> samples_of(const std::vector<Subject>& subjects,
                                            size_t first = 0) {
  std::vector<std::vector<double>> samples;
  for (size_t i = first; i < subjects.size(); ++i) samples.push_back(subjects[i].samples);
  return samples;
}

// The median of a few calls, after one that is not counted.
double quick_us(const std::function<void()>& call) {
  call();
  std::vector<double> samples;
  const double start = now_us();
  for (int i = 0; i < 100 && (i < 5 || now_us() - start < 2e3); ++i) {
    const double before = now_us();
    call();
    samples.push_back(now_us() - before);
  }
  return quantile(samples, 0.5);
}

Subject subject(std::function<void()> call, bool cold) {
  const double us = quick_us(call);
  const int calls = cold ? 1 : static_cast<int>(std::clamp(kMinSampleUs / us, 1.0, 1000.0));
  return {std::move(call), calls};
}

void take_sample(Subject& subject, CacheFlush* flush) {
  const auto restore = [&] {
    if (subject.restore) subject.restore();
  };
  if (flush != nullptr) {
    restore();
    flush->run();
  } else {
    subject.call();  // what ran before has taken the caches and put the threads to sleep
    restore();
  }
  const double start = now_us();
  for (int i = 0; i < subject.calls_per_sample; ++i) subject.call();
  subject.samples.push_back((now_us() - start) / subject.calls_per_sample);
}

// Samples the subjects in turn.
void take_samples(std::vector<Subject>& subjects, const Options& options, CacheFlush* flush) {
  const double start = now_us();
  const double min_us = options.min_time * 1e6;
  for (int rep = 0;; ++rep) {
    if (options.reps > 0) {
      if (rep >= options.reps) return;
    } else {
      const double elapsed = now_us() - start;
      if (rep >= kMaxReps || (rep >= kMinReps && elapsed >= min_us)) return;
      if (rep >= 5 && elapsed >= 20 * min_us) return;
    }
    for (Subject& subject : subjects) take_sample(subject, flush);
  }
}

std::vector<std::vector<uint8_t>> outputs_of(const cases::Case& test, const cases::Buffers& buffers,
                                             Backend backend, uint8_t prefill) {
  buffers.refill(prefill);
  Backend ran{};
  test.out(buffers.outputs(), buffers.inputs(), Call{.backend = backend, .ran = &ran});
  if (ran != backend) throw std::logic_error(test.id + " ran on " + std::string(name(ran)));
  std::vector<std::vector<uint8_t>> outputs;
  for (size_t i = 0; i < buffers.outputs().size(); ++i) outputs.push_back(buffers.output_bytes(i));
  return outputs;
}

// Another way to the same bytes on the cpu backend: one thread, and the last of the targets.
std::vector<std::vector<uint8_t>> outputs_of_another_way(const cases::Case& test,
                                                         const cases::Buffers& buffers,
                                                         std::string& judge) {
  const int threads = get_num_threads();
  const std::string target = get_cpu_target();
  const std::vector<std::string> targets = cpu_targets();
  const std::string& other = target == targets.back() ? targets.front() : targets.back();
  const cases::ScopeExit back([&] {
    set_num_threads(threads);
    set_cpu_target(target);
  });
  set_num_threads(1);
  set_cpu_target(other);
  judge = "cpu " + other + ", 1 thread";
  return outputs_of(test, buffers, Backend::kCpu, 0xA5);
}

// Throws unless the result is right; returns what judged it.
std::string check_result(const cases::Case& test, const cases::Buffers& buffers, Backend backend,
                         int64_t bytes) {
  std::string judge = "reference";
  const auto want = bytes <= kReferenceLimit || cpu_targets().empty()
                        ? outputs_of(test, buffers, Backend::kReference, 0xA5)
                        : outputs_of_another_way(test, buffers, judge);
  if (outputs_of(test, buffers, backend, 0x5A) != want || !buffers.damaged().empty()) {
    throw std::runtime_error(test.id + " on " + std::string(name(backend)) +
                             ": the result differs from that of " + judge +
                             ", so it is not timed; see tilekernels verify");
  }
  return judge;
}

struct Result {
  std::string op;
  std::string id;
  Backend backend;
  std::string target;
  int threads;
  int64_t bytes;
  std::string judge;
  size_t reps;
  Timing time;
  Timing memcpy_time;
  int memcpy_threads;
  double share_of_memcpy;
  Timing copy_time;  // of the fastest copy
  CopyMethod copy_method;
  double share_of_copy;

  double gbs() const { return static_cast<double>(bytes) / time.us * 1e-3; }
};

std::string text(const CopyMethod& method) {
  return std::string(method.streaming ? "streaming stores" : "memcpy") + ", " +
         counted(method.num_threads, "thread");
}

Json to_json(const Result& result, bool cold) {
  Json json;
  json["op"] = result.op;
  json["case"] = result.id;
  json["backend"] = name(result.backend);
  if (!result.target.empty()) json["target"] = result.target;
  json["threads"] = result.threads;
  json["caches"] = cold ? "cold" : "warm";
  json["checked_by"] = result.judge;
  json["reps"] = result.reps;
  json["bytes"] = result.bytes;
  json["us"] = result.time.us;
  json["us_p10"] = result.time.p10;
  json["us_p90"] = result.time.p90;
  json["gbs"] = result.gbs();
  json["memcpy_us"] = result.memcpy_time.us;
  json["memcpy_threads"] = result.memcpy_threads;
  json["share_of_memcpy"] = result.share_of_memcpy;
  json["copy"] = text(result.copy_method);
  json["copy_us"] = result.copy_time.us;
  json["copy_us_p10"] = result.copy_time.p10;
  json["copy_us_p90"] = result.copy_time.p90;
  json["share_of_copy"] = result.share_of_copy;
  return json;
}

// The method with or without streaming stores that has the least median, by a few samples of each,
// taken as they will be: after a call of the op. None where there is no such method.
std::optional<CopyMethod> fastest(CopyBench& copies, bool streaming, const Subject& op,
                                  const Options& options, CacheFlush* flush) {
  std::vector<CopyMethod> methods = copies.methods();
  std::erase_if(methods, [&](const CopyMethod& method) { return method.streaming != streaming; });
  if (methods.size() < 2) return methods.empty() ? std::nullopt : std::optional(methods[0]);
  std::vector<Subject> subjects;
  for (const CopyMethod& method : methods) {
    subjects.push_back(subject([&] { copies.run(method); }, options.cold));
  }
  const double start = now_us();
  for (int rep = 0; rep < kChoiceReps && (rep < 3 || now_us() - start < 1e5); ++rep) {
    for (Subject& subject : subjects) {
      op.call();
      take_sample(subject, flush);
    }
  }
  return methods[least_median(samples_of(subjects))];
}

Result run_case(std::string_view op, const cases::Case& test, Backend backend,
                const Options& options, Team& team, CacheFlush* flush) {
  const int64_t bytes = cases::bytes_moved(test);
  const cases::Buffers buffers(test, 0);
  const std::string judge = check_result(test, buffers, backend, bytes);

  const Call call{.backend = backend};
  std::vector<Subject> subjects;
  subjects.push_back(
      subject([&] { test.out(buffers.outputs(), buffers.inputs(), call); }, options.cold));
  if (!test.starts_as.empty()) {
    subjects.back().calls_per_sample = 1;
    subjects.back().restore = [&] { buffers.refill(0); };
  }
  CopyBench copies(bytes, team);
  const CopyMethod plain = *fastest(copies, false, subjects[0], options, flush);
  const std::optional<CopyMethod> streaming = fastest(copies, true, subjects[0], options, flush);
  subjects.push_back(subject([&] { copies.run(plain); }, options.cold));
  if (streaming) subjects.push_back(subject([&] { copies.run(*streaming); }, options.cold));
  take_samples(subjects, options, flush);

  const std::vector<double>& samples = subjects[0].samples;
  const std::vector<std::vector<double>> copy_samples = samples_of(subjects, 1);
  const size_t best = least_median(copy_samples);
  const bool on_cpu = backend == Backend::kCpu;
  return {.op = std::string(op),
          .id = test.id,
          .backend = backend,
          .target = on_cpu ? get_cpu_target() : "",
          .threads = on_cpu ? get_num_threads() : 1,
          .bytes = bytes,
          .judge = judge,
          .reps = samples.size(),
          .time = timing(samples),
          .memcpy_time = timing(copy_samples[0]),
          .memcpy_threads = plain.num_threads,
          .share_of_memcpy = paired_ratio(copy_samples[0], samples),
          .copy_time = timing(copy_samples[best]),
          .copy_method = best == 0 ? plain : *streaming,
          .share_of_copy = paired_ratio(copy_samples[best], samples)};
}

// The case's id without its op.
std::string shape_of(const Result& result) {
  const size_t slash = result.id.find('/');
  return slash == std::string::npos ? result.id : result.id.substr(slash + 1);
}

std::string backend_text(const Result& result) {
  return std::string(name(result.backend)) + (result.target.empty() ? "" : " " + result.target);
}

void print_head(int width) {
  std::printf("%-*s  %9s  %19s  %7s  %9s  %9s  %s\n", width, "case", "us", "p10..p90", "GB/s",
              "of memcpy", "of copy", "checked by");
}

void print_result(const Result& result, int width) {
  char spread[48];
  std::snprintf(spread, sizeof(spread), "%.1f..%.1f", result.time.p10, result.time.p90);
  std::printf("%-*s  %9.1f  %19s  %7.1f  %7.0f %%  %7.0f %%  %s\n", width, result.id.c_str(),
              result.time.us, spread, result.gbs(), 100 * result.share_of_memcpy,
              100 * result.share_of_copy, result.judge.c_str());
  std::fflush(stdout);
}

const char* colour(Backend backend) {
  switch (backend) {
    case Backend::kReference:
      return "#8c959f";
    case Backend::kCpu:
      return "#2f6fb5";
    case Backend::kCuda:
      return "#5a9216";
    case Backend::kAscend:
      return "#c0392b";
  }
  return "#8c959f";
}

std::string plot(const std::vector<Result>& results, bool cold) {
  std::vector<Bar> bars;
  for (const Result& result : results) {
    if (result.bytes < kMinPlotBytes) continue;
    char text[64];
    std::snprintf(text, sizeof(text), "%.0f %%, %.1f GB/s", 100 * result.share_of_memcpy,
                  result.gbs());
    bars.push_back({result.op + " on " + backend_text(result), shape_of(result),
                    colour(result.backend), result.share_of_memcpy,
                    result.share_of_memcpy / result.share_of_copy, text});
  }
  const Machine here = machine();
  const std::string subtitle =
      here.cpu + ", " + counted(get_num_threads(), "thread") + ", " + (cold ? "cold" : "warm") +
      " caches, shapes of 1 MiB and more. Stroke: the fastest copy, " +
      "streaming stores included. tilekernels " + version() + ", " + now().substr(0, 10);
  return bar_plot("Speed as a share of memcpy of the same bytes", subtitle, "memcpy", bars);
}

int run(const Options& options) {
  const std::vector<Selection> selections = select_cases(options.selectors, true);
  BackendChoice backends = choose_backends(options.backends);
  if (options.backends.empty() && !get_backend()) {
    // The reference judges; nobody waits for its speed.
    std::erase(backends.here, Backend::kReference);
    std::erase(backends.here, Backend::kCuda);
    std::erase(backends.here, Backend::kAscend);
  }
  refuse_emulator(backends.here, "bench times machines");
  if (std::count(backends.here.begin(), backends.here.end(), Backend::kAscend) > 0) {
    if (backends.here.size() > 1) {
      throw std::invalid_argument("--backend ascend tells costs, not times, and stands alone");
    }
    return bench_ascend({selections, options.json, options.record, options.plot});
  }
  if (std::count(backends.here.begin(), backends.here.end(), Backend::kCuda) > 0) {
    if (backends.here.size() > 1 || !options.plot.empty()) {
      throw std::invalid_argument("--backend cuda is timed alone and not drawn");
    }
    const int reps = options.reps > 0 ? options.reps : kCudaReps;
    return bench_cuda(
        {selections, reps, options.json, options.host_cost, options.cupti, options.record});
  }
  if (options.host_cost || !options.cupti.empty()) {
    throw std::invalid_argument("--host-cost and --cupti need --backend cuda");
  }
  if (!options.target.empty()) set_cpu_target(options.target);
  OutFile record(options.record);
  OutFile picture(options.plot);

  Team team(get_num_threads());
  std::optional<CacheFlush> flush;
  if (options.cold) flush.emplace(machine().cache_bytes, team);

  int width = 4;
  for (const Selection& selection : selections) {
    for (const cases::Case* test : selection.cases) {
      width = std::max(width, static_cast<int>(test->id.size()));
    }
  }
  std::vector<Result> results;
  for (Backend backend : backends.here) {
    if (!options.json) {
      const bool on_cpu = backend == Backend::kCpu;
      std::printf(
          "%s%s%s, %s caches\n", results.empty() ? "" : "\n", std::string(name(backend)).c_str(),
          on_cpu ? (" " + get_cpu_target() + ", " + counted(get_num_threads(), "thread")).c_str()
                 : "",
          options.cold ? "cold" : "warm");
      print_head(width);
    }
    for (const Selection& selection : selections) {
      if (!has_kernel(*selection.op, backend)) {
        if (!options.json) {
          std::printf("%s: no kernel\n", std::string(selection.op->op).c_str());
        }
        continue;
      }
      for (const cases::Case* test : selection.cases) {
        results.push_back(
            run_case(selection.op->op, *test, backend, options, team, flush ? &*flush : nullptr));
        if (options.json) {
          std::printf("%s\n", to_json(results.back(), options.cold).dump().c_str());
          std::fflush(stdout);
        } else {
          print_result(results.back(), width);
        }
      }
    }
  }
  if (results.empty()) throw std::runtime_error("nothing was timed: no kernel for this selection");
  if (!options.json) {
    std::printf(
        "\nof memcpy: memcpy of the same bytes, by one thread or all, whichever is faster.\n"
        "of copy:   the fastest copy, memcpy or streaming stores. Read and written bytes count.\n");
  }
  if (record.is_wanted()) {
    Json json = record_head("bench");
    json["results"] = Json::array();
    for (const Result& result : results) json["results"].push_back(to_json(result, options.cold));
    record.write(json.dump(2) + "\n");
  }
  if (picture.is_wanted()) picture.write(plot(results, options.cold));
  return kSuccess;
}

}  // namespace

Command bench_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const parser =
      app.add_subcommand("bench", "Time the bench cases beside copies of the same number of bytes");
  parser->add_option("cases", options->selectors,
                     "Ops, or beginnings of case ids (topk_gate/tokens=4096); all when left out");
  parser
      ->add_option(
          "--backend", options->backends,
          "reference, cpu, cuda or ascend; may be given again; cuda is timed alone; ascend tells "
          "costs by the machine model; cpu when left out")
      ->allow_extra_args(false)
      ->type_name("NAME");
  parser->add_option("--target", options->target, "Instruction set of the cpu backend (see info)")
      ->type_name("NAME");
  auto* const min_time =
      parser->add_option("--min-time", options->min_time, "Seconds of sampling a case, at least")
          ->check(CLI::Range(0.0, 3600.0))
          ->capture_default_str()
          ->type_name("SECONDS");
  parser->add_option("--reps", options->reps, "Samples a case, instead of --min-time")
      ->check(CLI::Range(1, 1000000))
      ->excludes(min_time)
      ->type_name("N");
  parser->add_flag("--cold", options->cold, "Turn the caches over before every call");
  parser->add_flag("--host-cost", options->host_cost,
                   "cuda: what calls, first calls and lookups cost the host, instead of times");
  parser
      ->add_option("--cupti", options->cupti,
                   "cuda: the CUPTI library that times kernels; searched when left out")
      ->type_name("FILE");
  parser->add_flag("--json", options->json, "Print one JSON object a case");
  parser->add_option("--record", options->record, "Write a record of the run as JSON to FILE")
      ->type_name("FILE");
  parser->add_option("--plot", options->plot, "Draw the shares as SVG to FILE")->type_name("FILE");
  return {parser, [options] { return run(*options); }};
}

}  // namespace tilekernels::tool
