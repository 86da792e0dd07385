#pragma once
// Configs of models as JSON, for tests.
#include <boost/json/parse.hpp>
#include <string>

#include "format/json.h"
#include "runtime/model/config/model_config.h"

namespace quire::tiny {

inline Result<ModelConfig> from_json(const std::string& text) {
  const auto json = boost::json::parse(text);
  return config_from_hf(JsonRef(json, "config.json"));
}

// Returns a small config of this kind with the additional members `more`.
inline std::string json_of(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type": ")" + model_type + R"(", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100,
    "num_attention_heads": 4, "max_position_embeddings": 8192)" +
         more + "}";
}

}  // namespace quire::tiny
