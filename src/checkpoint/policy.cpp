// Which tensors are cast to a quantized format, and why not the others.
#include "checkpoint/policy.h"

// Under a sanitizer GCC 12 believes that std::regex reads what it has not written.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <fnmatch.h>

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "checkpoint/formats.h"
#include "core/message.h"
#include "io/text.h"

namespace tilekernels::checkpoint {
namespace {

constexpr std::string_view kExpression = "re:";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

template <size_t N>
bool one_of(std::string_view text, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

// Why a weight of this name stays as it is; empty when nothing speaks against the cast.
std::string_view kept_by_name(std::string_view tensor) {
  const std::string module = lower(module_of(tensor));
  const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
  constexpr std::string_view kEmbeddings[] = {"wte", "wpe", "relative_attention_bias"};
  if (contains(last, "embed") || one_of(last, kEmbeddings) || module == "shared") {
    return "embedding";
  }
  constexpr std::string_view kHeads[] = {"lm_head",    "head",       "score",
                                         "classifier", "qa_outputs", "embed_out"};
  if (one_of(last, kHeads) || module == "output" || contains(module, "predictions.decoder")) {
    return "output head";
  }
  if (contains(last, "norm") || last == "ln" || last.substr(0, 3) == "ln_") return "norm";
  constexpr std::string_view kGates[] = {"gate", "router", "wg", "shared_expert_gate"};
  if (one_of(last, kGates) || contains(module, ".router.")) return "router gate";
  // Small projections that DeepSeek's own FP8 checkpoints keep in bf16.
  constexpr std::string_view kPrecise[] = {"eh_proj", "weights_proj"};
  if (one_of(last, kPrecise)) return "kept by DeepSeek's checkpoints";
  return "";
}

}  // namespace

struct NamePatterns::Pattern {
  std::string text;
  bool is_expression = false;
  std::regex expression;
  mutable bool used = false;
};

NamePatterns::NamePatterns(const std::vector<std::string>& patterns, std::string_view option)
    : patterns_(std::make_unique<std::vector<Pattern>>()) {
  for (const std::string& text : patterns) {
    Pattern pattern;
    pattern.text = text;
    pattern.is_expression = text.compare(0, kExpression.size(), kExpression) == 0;
    if (pattern.is_expression) {
      try {
        pattern.expression.assign(text.substr(kExpression.size()));
      } catch (const std::regex_error& error) {
        throw std::invalid_argument(message(
            "convert", option,
            "must hold valid expressions after re:", io::quote(text) + " (" + error.what() + ")"));
      }
    }
    patterns_->push_back(std::move(pattern));
  }
}

NamePatterns::~NamePatterns() = default;

const std::string* NamePatterns::match(std::string_view tensor) const {
  if (patterns_->empty()) return nullptr;
  const std::string names[] = {std::string(tensor), std::string(module_of(tensor))};
  for (const Pattern& pattern : *patterns_) {
    for (const std::string& name : names) {
      const bool hit =
          pattern.is_expression
              ? std::regex_search(name, pattern.expression, std::regex_constants::match_continuous)
              : ::fnmatch(pattern.text.c_str(), name.c_str(), 0) == 0;
      if (hit) {
        pattern.used = true;
        return &pattern.text;
      }
    }
  }
  return nullptr;
}

std::vector<std::string> NamePatterns::unused() const {
  std::vector<std::string> texts;
  for (const Pattern& pattern : *patterns_) {
    if (!pattern.used) texts.push_back(pattern.text);
  }
  return texts;
}

std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size()) : tensor;
}

CastDecision decide_cast(const io::TensorEntry& tensor, const NamePatterns& ignore,
                         const NamePatterns& include) {
  if (!is_plain_float(tensor.dtype)) {
    return {false, std::string(name(tensor.dtype)) + " is not cast"};
  }
  const size_t rank = tensor.shape.size();
  if (const std::string* pattern = ignore.match(tensor.name))
    return {false, "--ignore " + *pattern};
  if (const std::string* pattern = include.match(tensor.name)) {
    if (rank != 2 && rank != 3) {
      throw std::invalid_argument(
          message("convert", "include", "must match matrices and stacks of them",
                  io::quote(tensor.name) + " of shape " + io::shape_text(tensor.shape)));
    }
    return {true, "--include " + *pattern};
  }
  if (rank < 2) return {false, rank == 0 ? "scalar" : "vector"};
  const bool is_experts =
      rank == 3 && contains("." + tensor.name, ".experts.") && !tensor.name.ends_with("bias");
  if (!is_experts && (rank != 2 || !tensor.name.ends_with(".weight"))) {
    return {false, rank == 2 ? "not named .weight" : "rank " + std::to_string(rank)};
  }
  const std::string_view kept = kept_by_name(tensor.name);
  if (!kept.empty()) return {false, std::string(kept)};
  return {true, is_experts ? "stacked experts" : "matrix"};
}

bool stays_wide(std::string_view tensor) { return tensor.ends_with("e_score_correction_bias"); }

}  // namespace tilekernels::checkpoint
