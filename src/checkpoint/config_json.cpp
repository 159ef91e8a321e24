// config.json: what it claims about quantization, and the form it takes in the output.
#include "checkpoint/config_json.h"

#include <algorithm>

#include "io/text.h"

namespace tilekernels::checkpoint {
namespace {

using io::Json;

constexpr char kQuantConfig[] = "quantization_config";
constexpr char kPlainModules[] = "modules_to_not_convert";

std::string text_of(const Json& object, std::string_view key) {
  const Json* value = io::find_member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// text_config, vision_config, …: configs of parts, which repeat the dtype.
bool is_nested_config(const std::string& key, const Json& value) {
  return value.is_object() && key.ends_with("_config") && key != kQuantConfig;
}

const Json* find_quant_config(const Json& config) {
  if (!config.is_object()) return nullptr;
  if (const Json* found = io::find_member(config, kQuantConfig)) return found;
  const Json* text = io::find_member(config, "text_config");
  return text == nullptr ? nullptr : io::find_member(*text, kQuantConfig);
}

void set_dtype(Json* config, const std::string& dtype) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = config->find(key);
    if (found != config->end() && found->is_string()) *found = dtype;
  }
}

void merge_plain_modules(Json* quant_config, const std::vector<std::string>& modules) {
  if (modules.empty()) return;
  Json& list = (*quant_config)[kPlainModules];
  if (!list.is_array()) list = Json::array();
  for (const std::string& module : modules) {
    if (std::find(list.begin(), list.end(), module) == list.end()) list.push_back(module);
  }
}

}  // namespace

QuantClaim read_claim(const Json& config, const std::string& where) {
  QuantClaim claim;
  const Json* quant = find_quant_config(config);
  if (quant == nullptr || !quant->is_object()) return claim;
  claim.present = true;
  claim.method = text_of(*quant, "quant_method");
  claim.fmt = text_of(*quant, "fmt");
  claim.scale_fmt = text_of(*quant, "scale_fmt");
  const Json* block = io::find_member(*quant, "weight_block_size");
  if (block != nullptr && !block->is_null()) {
    const auto extent = [&](size_t i) {
      const bool good = block->is_array() && block->size() == 2 &&
                        (*block)[i].is_number_unsigned() && (*block)[i] >= 1 &&
                        (*block)[i] <= (1 << 20);
      if (!good) {
        std::string got = block->dump();
        if (got.size() > 64) got = got.substr(0, 64) + "…";
        io::malformed(where, "weight_block_size must be two numbers from 1 to 2^20", got);
      }
      return (*block)[i].get<int>();
    };
    claim.block = {extent(0), extent(1)};
  }
  return claim;
}

Json rewrite_config(const Json& config, const ConfigChange& change) {
  Json out = config;
  if (!out.is_object()) return out;
  const auto for_each_part = [&](auto&& act) {
    act(&out);
    for (auto& [key, value] : out.items()) {
      if (is_nested_config(key, value)) act(&value);
    }
  };
  if (!change.target->torch_dtype.empty()) {
    for_each_part([&](Json* part) { set_dtype(part, std::string(change.target->torch_dtype)); });
  }
  const bool claimed = find_quant_config(out) != nullptr;
  if (!change.is_quantized) {
    for_each_part([&](Json* part) { part->erase(kQuantConfig); });
  } else if (claimed && change.keep_claim) {
    for_each_part([&](Json* part) {
      const auto found = part->find(kQuantConfig);
      if (found != part->end()) merge_plain_modules(&*found, change.plain_modules);
    });
  } else {
    for_each_part([&](Json* part) { part->erase(kQuantConfig); });
    const QuantScheme* scheme = change.target->scheme;
    if (scheme != nullptr) {
      out[kQuantConfig] = io::parse_json(scheme->config, kQuantConfig);
      merge_plain_modules(&out[kQuantConfig], change.plain_modules);
    }
  }
  return out;
}

TiedEmbeddings tied_embeddings(const Source& source) {
  TiedEmbeddings tied;
  if (!source.config) return tied;
  const Json* flag = io::find_member(*source.config, "tie_word_embeddings");
  if (flag == nullptr) {
    const Json* text = io::find_member(*source.config, "text_config");
    if (text != nullptr) flag = io::find_member(*text, "tie_word_embeddings");
  }
  tied.has_flag = flag != nullptr && flag->is_boolean();
  tied.tied = tied.has_flag && flag->get<bool>();
  for (size_t s = 0; s < source.shards.size(); ++s) {
    const auto& tensors = source.shards[s].header.tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const TensorRef ref{static_cast<int>(s), static_cast<int>(t)};
      if (("." + tensors[t].name).ends_with(".lm_head.weight")) tied.head = ref;
      if (("." + tensors[t].name).ends_with(".embed_tokens.weight")) tied.embedding = ref;
    }
  }
  // Encoders have no head to miss.
  const Json* architectures = io::find_member(*source.config, "architectures");
  if (architectures == nullptr || !architectures->is_array()) {
    tied.expects_head = true;
  } else {
    for (const Json& entry : *architectures) {
      if (!entry.is_string()) continue;
      const std::string& text = entry.get_ref<const std::string&>();
      tied.expects_head |=
          text.find("LM") != std::string::npos || text.ends_with("ForConditionalGeneration");
    }
  }
  return tied;
}

std::string describe_model(const Json& config) {
  std::string architecture;
  const Json* architectures = io::find_member(config, "architectures");
  if (architectures != nullptr && architectures->is_array() && !architectures->empty() &&
      (*architectures)[0].is_string()) {
    architecture = (*architectures)[0].get<std::string>();
  }
  const std::string type = text_of(config, "model_type");
  if (architecture.empty()) return type;
  return type.empty() ? architecture : architecture + " (" + type + ")";
}

}  // namespace tilekernels::checkpoint
