// tilekernels verify: runs the cases on the backends of this machine and judges them by the
// reference.
#include "cases/verify.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "out_file.h"
#include "printable.h"
#include "select.h"
#include "support.h"
#include "tilekernels/config.h"

namespace tilekernels::tool {
namespace {

struct Options {
  std::vector<std::string> selectors;
  std::vector<std::string> backends;
  std::string target;
  bool all_targets = false;
  bool support = false;
  bool small = false;
  bool pdl = false;
  std::string record;
};

// What --small leaves: tools that watch every access make a call a thousand times slower.
constexpr int64_t kSmallBytes = int64_t{256} << 10;
constexpr size_t kSmallCases = 30;

// One op on one backend (on one SIMD target of it).
struct Row {
  std::string op;
  Backend backend;
  std::string target;  // empty unless the backend is cpu
  bool has_kernel = true;
  int cases = 0;
  int passed = 0;
  int64_t elements = 0;
  int64_t mismatches = 0;
  double seconds = 0;
};

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (int i = static_cast<int>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<size_t>(i), ",");
  }
  return text;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A few small cases from all over the op's list, which is ordered by what they are about.
void keep_small(Selection& selection) {
  std::vector<const cases::Case*> small;
  std::copy_if(selection.cases.begin(), selection.cases.end(), std::back_inserter(small),
               [](const cases::Case* test) {
                 return test->error.empty() && cases::bytes_moved(*test) <= kSmallBytes;
               });
  selection.cases.clear();
  const size_t count = std::min(small.size(), kSmallCases);
  for (size_t i = 0; i < count; ++i) selection.cases.push_back(small[i * small.size() / count]);
}

// The rows of an op, before a case has run: one a backend, for cpu one a target.
std::vector<Row> rows_of(const cases::OpCases& op, const std::vector<Backend>& backends,
                         bool all_targets) {
  std::vector<Row> rows;
  for (Backend backend : backends) {
    std::vector<std::string> targets = {""};
    if (backend == Backend::kCpu) {
      targets = all_targets ? cpu_targets() : std::vector<std::string>{get_cpu_target()};
    }
    for (const std::string& target : targets) {
      rows.push_back({.op = std::string(op.op),
                      .backend = backend,
                      .target = target,
                      .has_kernel = has_kernel(op, backend)});
    }
  }
  return rows;
}

// Runs one case on every row. Adds the text of each failure to `failures`.
void run_case(const cases::Case& test, std::vector<Row>& rows, std::vector<std::string>& failures) {
  cases::Judge judge(test);
  for (Row& row : rows) {
    if (!row.has_kernel) continue;
    if (!row.target.empty()) set_cpu_target(row.target);
    const double start = seconds_now();
    const cases::Verdict verdict = judge.verify(row.backend);
    row.seconds += seconds_now() - start;
    ++row.cases;
    row.passed += verdict.passed ? 1 : 0;
    row.elements += verdict.elements;
    row.mismatches += verdict.mismatches;
    if (verdict.passed) continue;
    failures.push_back(verdict.failure + (row.target.empty() ? "" : " --target " + row.target));
  }
}

void print_head(int op_width) {
  std::printf("%-*s  %-9s  %-9s  %9s  %13s  %10s  %7s\n", op_width, "op", "backend", "target",
              "cases", "elements", "mismatches", "time");
}

void print_row(const Row& row, int op_width) {
  const std::string backend(name(row.backend));
  const char* const target = row.target.empty() ? "-" : row.target.c_str();
  if (row.has_kernel) {
    const std::string cases = std::to_string(row.passed) + "/" + std::to_string(row.cases);
    std::printf("%-*s  %-9s  %-9s  %9s  %13s  %10s  %5.2f s\n", op_width, row.op.c_str(),
                backend.c_str(), target, cases.c_str(), grouped(row.elements).c_str(),
                grouped(row.mismatches).c_str(), row.seconds);
  } else {
    std::printf("%-*s  %-9s  %-9s  no kernel\n", op_width, row.op.c_str(), backend.c_str(), target);
  }
  std::fflush(stdout);
}

std::string record_text(const std::vector<Row>& rows, const std::vector<std::string>& failures) {
  nlohmann::ordered_json record = record_head("verify");
  record["results"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json result = {{"op", row.op}, {"backend", name(row.backend)}};
    if (!row.target.empty()) result["target"] = row.target;
    result["has_kernel"] = row.has_kernel;
    result["cases"] = row.cases;
    result["passed"] = row.passed;
    result["elements"] = row.elements;
    result["mismatches"] = row.mismatches;
    result["seconds"] = row.seconds;
    record["results"].push_back(std::move(result));
  }
  record["failures"] = failures;
  return record.dump(2) + "\n";
}

int run(const Options& options) {
  if (options.support) {
    std::fputs(support_page().c_str(), stdout);
    return kSuccess;
  }
  std::vector<Selection> selections = select_cases(options.selectors, false);
  if (options.small) std::for_each(selections.begin(), selections.end(), keep_small);
  set_pdl(options.pdl);
  const BackendChoice backends = choose_backends(options.backends);
  if (!options.record.empty()) refuse_emulator(backends.here, "--record keeps runs on machines");
  if (!options.target.empty()) set_cpu_target(options.target);
  OutFile record(options.record);

  int op_width = 2;
  for (const Selection& selection : selections) {
    op_width = std::max(op_width, static_cast<int>(selection.op->op.size()));
  }
  std::vector<Row> rows;
  std::vector<std::string> failures;
  print_head(op_width);
  for (const Selection& selection : selections) {
    std::vector<Row> of_op = rows_of(*selection.op, backends.here, options.all_targets);
    for (const cases::Case* test : selection.cases) run_case(*test, of_op, failures);
    for (const Row& row : of_op) print_row(row, op_width);
    rows.insert(rows.end(), of_op.begin(), of_op.end());
  }
  for (const BackendStatus& absent : backends.absent) {
    std::printf("absent: %s (%s)\n", std::string(name(absent.backend)).c_str(),
                absent.detail.c_str());
  }
  int cases = 0;
  for (const Row& row : rows) cases += row.cases;
  for (const std::string& failure : failures) std::printf("\nFAILED %s\n", failure.c_str());
  if (record.is_wanted()) record.write(record_text(rows, failures));
  if (cases == 0) {
    std::printf("\nNothing was run: no kernel for this selection.\n");
    return kFailure;
  }
  if (!failures.empty()) {
    std::printf("\n%zu of %s failed.\n", failures.size(), counted(cases, "case").c_str());
    return kFailure;
  }
  std::printf("\n%s passed: every backend gives the bytes of the reference.\n",
              cases == 1 ? "The one case" : ("All " + counted(cases, "case")).c_str());
  return kSuccess;
}

}  // namespace

Command verify_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const parser = app.add_subcommand(
      "verify", "Run the cases on every backend of this machine and compare with the reference");
  parser->add_option("cases", options->selectors,
                     "Ops, or beginnings of case ids (topk_gate/tokens=5); all when left out");
  parser
      ->add_option("--backend", options->backends,
                   "reference, cpu, cuda or ascend; may be given again; all when left out")
      ->allow_extra_args(false)
      ->type_name("NAME");
  auto* const target =
      parser
          ->add_option("--target", options->target, "Instruction set of the cpu backend (see info)")
          ->type_name("NAME");
  parser->add_flag("--all-targets", options->all_targets, "Every instruction set of this machine")
      ->excludes(target);
  parser->add_flag("--small", options->small,
                   "At most 30 cases an op, none of them large: for tools that slow kernels down");
  parser->add_flag("--pdl", options->pdl, "Launch the kernels of cuda as dependent launches");
  auto* const record =
      parser->add_option("--record", options->record, "Write a record of the run as JSON to FILE")
          ->type_name("FILE");
  parser->add_flag("--support", options->support, "Print the table of docs/support.md instead")
      ->excludes(record);
  return {parser, [options] { return run(*options); }};
}

}  // namespace tilekernels::tool
