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

bool has_tensor(const Source& source, std::string_view end) {
  for (const Shard& shard : source.shards) {
    for (const io::TensorEntry& tensor : shard.header.tensors) {
      if (("." + tensor.name).ends_with(end)) return true;
    }
  }
  return false;
}

// Encoders have no head to miss.
bool expects_head(const Json& config) {
  const Json* architectures = io::find_member(config, "architectures");
  if (architectures == nullptr || !architectures->is_array()) return true;
  return std::any_of(architectures->begin(), architectures->end(), [](const Json& entry) {
    if (!entry.is_string()) return false;
    const std::string& text = entry.get_ref<const std::string&>();
    return text.find("LM") != std::string::npos || text.ends_with("ForConditionalGeneration");
  });
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

std::string tied_contradiction(const Source& source) {
  if (!source.config) return "";
  const Json* flag = io::find_member(*source.config, "tie_word_embeddings");
  if (flag == nullptr) {
    const Json* text = io::find_member(*source.config, "text_config");
    if (text != nullptr) flag = io::find_member(*text, "tie_word_embeddings");
  }
  if (flag == nullptr || !flag->is_boolean()) return "";
  if (!has_tensor(source, ".embed_tokens.weight")) return "";
  const bool has_head = has_tensor(source, ".lm_head.weight");
  if (flag->get<bool>()) {
    return has_head ? "config.json says tie_word_embeddings = true, yet there is an lm_head.weight"
                    : "";
  }
  return has_head || !expects_head(*source.config)
             ? ""
             : "config.json says tie_word_embeddings = false, yet there is no lm_head.weight";
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
