#pragma once
// Logits of transformers for small models of every architecture and weight type (tools/record/logits.py, tools/record/window_logits.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "format/json.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/tiny_quantised.h"

namespace quire::tiny {

struct LogitCase {
  std::string name;
  std::string container;
  std::string type;
  boost::json::value config;
  std::vector<float> rope_factors;
  std::uint32_t max_model_len = 128;
  boost::json::value adapter;  // the config, and names and shapes of the tensors; null without an adapter
  boost::json::array parts;    // of each quantised matrix; empty if none is quantised
  boost::json::array left;     // parts of the names of matrices that are not quantised
  std::vector<float> logits;   // [position][vocab]
};

struct LogitRecord {
  std::vector<TokenId> prompt;
  std::vector<std::uint32_t> positions;
  std::vector<LogitCase> cases;
};

template <class T>
std::vector<T> numbers(const boost::json::value& array) {
  std::vector<T> out;
  for (const auto& value : array.as_array()) out.push_back(value.to_number<T>());
  return out;
}

// Reads the two files whose names begin with `name`.
inline LogitRecord read_logit_record(const std::string& name) {
  LogitRecord record;
  const auto json = read_json_file("tests/golden/logits/" + name + "cases.json");
  EXPECT_TRUE(json) << (json ? "" : json.error().to_string());
  record.prompt = numbers<TokenId>(json->at("prompt"));
  record.positions = numbers<std::uint32_t>(json->at("positions"));
  std::ifstream logits("tests/golden/logits/" + name + "logits.f32", std::ios::binary);
  for (const auto& value : json->at("cases").as_array()) {
    LogitCase c{std::string(value.at("name").as_string()),
                std::string(value.at("container").as_string()),
                std::string(value.at("type").as_string()),
                value.at("config"),
                {},
                128,
                {},
                {},
                {},
                {}};
    if (const auto* factors = value.as_object().if_contains("rope_factors")) c.rope_factors = numbers<float>(*factors);
    if (const auto* served = value.as_object().if_contains("max_model_len")) c.max_model_len = served->to_number<std::uint32_t>();
    if (const auto* adapter = value.as_object().if_contains("adapter")) c.adapter = *adapter;
    if (const auto* parts = value.as_object().if_contains("tensors")) {
      c.parts = parts->as_array();
      c.left = value.at("left").as_array();
    }
    c.logits.resize(record.positions.size() * c.config.at("vocab_size").to_number<std::size_t>());
    logits.read(reinterpret_cast<char*>(c.logits.data()), static_cast<std::streamsize>(c.logits.size() * sizeof(float)));
    EXPECT_TRUE(logits.good());
    record.cases.push_back(std::move(c));
  }
  return record;
}

// Writes the case's model and returns its path.
inline std::string write_model(const LogitCase& c, const TempFolder& folder) {
  const auto config = config_from_hf(JsonRef(c.config, c.name));
  EXPECT_TRUE(config) << (config ? "" : config.error().to_string());
  const std::string path = folder.file(c.name);
  if (c.container == "quantised") {
    write_hf_folder(path, c.config, quantise(make_tensors(*config, false, "BF16"), c.parts, c.left));
    return path;
  }
  auto tensors = make_tensors(*config, c.container == "gguf", c.type);
  if (c.container == "hf") {
    write_hf_folder(path, c.config, tensors);
    return path;
  }
  if (!c.rope_factors.empty()) tensors.push_back(factor_tensor(TensorRole::rope_factors, c.rope_factors));
  write_file(path, gguf_header(*config).file(tensors));
  return path;
}

inline double standard_deviation(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Returns the largest difference of a case's logits from `logits` [position][vocab], over the standard deviation of the record.
inline double largest_difference(const LogitRecord& record, const LogitCase& c, const std::vector<float>& logits, std::size_t vocab) {
  double largest = 0.0;
  for (std::size_t i = 0; i < record.positions.size(); ++i) {
    for (std::size_t n = 0; n < vocab; ++n) {
      const double error = std::fabs(logits[record.positions[i] * vocab + n] - c.logits[i * vocab + n]);
      largest = std::isnan(error) ? INFINITY : std::max(largest, error);
    }
  }
  return largest / standard_deviation(c.logits);
}

// The largest allowed difference over the standard deviation of the logits, per weight type. Bounds are about four times the difference
// with float activations and twice the difference as served, over all models. The bits are equal on every machine, so a value that grows
// has a cause.
struct LogitBounds {
  double floats, int16, bf16_kv, served;
  double rounded = 0.1;  // bf16 activations with bf16 weights
};

inline const std::map<std::string, LogitBounds>& logit_bounds() {
  static const std::map<std::string, LogitBounds> all{
      {"F32", {2e-5, 2e-5, 0.032, 0.032}},        {"F16", {2e-5, 2e-5, 0.046, 0.046}},    {"BF16", {2e-5, 2e-5, 0.038, 0.038}},
      {"Q8_0", {4.8e-5, 1.4e-3, 0.09, 0.09}},     {"Q4_0", {1.5e-5, 7e-4, 0.04, 0.04}},   {"Q4_1", {2.8e-5, 8e-4, 0.05, 0.05}},
      {"Q4_K", {1e-4, 1.1e-3, 0.11, 0.11}},       {"Q5_K", {9e-5, 6e-4, 0.28, 0.28}},     {"Q6_K", {2e-5, 8.5e-4, 0.034, 0.034}},
      {"mixed", {3.7e-5, 1.7e-3, 0.075, 0.075}},  {"Q2_K", {5e-6, 5e-5, 1.2e-3, 1.2e-3}}, {"Q3_K", {2e-5, 8e-4, 0.034, 0.034}},
      {"IQ4_NL", {1.6e-5, 1.1e-3, 0.034, 0.034}}, {"IQ4_XS", {2e-5, 1e-3, 0.027, 0.027}}};
  return all;
}

// Bounds for mixtures of experts, whose randomly drawn routers amplify differences.
inline const std::map<std::string, LogitBounds>& expert_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{{"F32", {1e-4, 1e-4, 0.17, 0.17}},
                                                      {"BF16", {4e-4, 4e-4, 0.2, 0.2, 0.7}},
                                                      {"Q8_0", {4e-4, 5e-3, 0.34, 0.28}},
                                                      {"mixed", {3e-4, 5e-3, 0.22, 0.19}}};
  return all;
}

inline const std::map<std::string, LogitBounds>& gpt_oss_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{{"F32", {1.2e-4, 1.2e-4, 0.22, 0.22}},
                                                      {"BF16", {2.4e-5, 2.4e-5, 0.1, 0.1}},
                                                      {"Q8_0", {4e-4, 3.2e-3, 0.38, 0.38}},
                                                      {"MXFP4", {1.2e-4, 1.5e-3, 0.19, 0.18}}};
  return all;
}

inline const std::map<std::string, LogitBounds>& deepseek_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{{"F32", {5e-5, 5e-5, 0.1, 0.1}},
                                                      {"BF16", {4e-5, 4e-5, 0.02, 0.02}},
                                                      {"Q8_0", {3.6e-5, 1.4e-3, 0.09, 0.09}},
                                                      {"Q4_1", {4.4e-5, 1.2e-3, 0.055, 0.056}}};
  return all;
}

// Bounds for quantised folders and for GGUF's smallest types (tools/record/quantised_logits.py), by the storage of their matrices.
inline const std::map<std::string, LogitBounds>& quantised_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{
      {"GPTQ4", {2e-5, 8e-4, 0.018, 0.018}},     {"GPTQ4 MoE", {2e-5, 8e-4, 0.05, 0.05}},  {"GPTQ8", {1.3e-5, 3e-4, 0.015, 0.015}},
      {"AWQ", {1.6e-5, 3e-4, 0.012, 0.012}},     {"INT4", {2.6e-5, 9e-4, 0.055, 0.055}},   {"INT8", {3e-5, 1.2e-3, 0.065, 0.065}},
      {"IQ1_S", {2.6e-5, 1e-3, 0.036, 0.036}},   {"IQ2_XS", {1.3e-5, 4e-4, 0.017, 0.017}}, {"IQ3_S", {1.5e-5, 4.5e-4, 0.022, 0.022}},
      {"TQ1_0", {6.4e-5, 1.3e-3, 0.055, 0.055}}, {"MXFP4", {3e-5, 7e-4, 0.036, 0.036}},    {"FP4", {1.2e-5, 3.5e-4, 0.0135, 0.0135}},
      {"FP8", {1.6e-5, 1.6e-5, 0.0116, 0.0116}}};
  return all;
}

// Bounds for layers with states, some of them with experts. An error in a state stays in it.
inline const std::map<std::string, LogitBounds>& state_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{{"F32", {1e-4, 1e-4, 0.13, 0.13}},
                                                      {"BF16", {1e-4, 1e-4, 0.36, 0.36, 1.0}},
                                                      {"Q8_0", {1e-4, 2.8e-3, 0.13, 0.13}},
                                                      {"qwen3_next_gguf_Q8_0", {1e-4, 1.6e-2, 0.13, 0.13}},
                                                      {"mixed", {1e-4, 4.9e-3, 0.5, 0.53}}};
  return all;
}

// Bounds for models that transformers supports since version 5.
inline const std::map<std::string, LogitBounds>& newer_logit_bounds() {
  static const std::map<std::string, LogitBounds> all{
      {"F32", {1e-4, 1e-4, 0.17, 0.17}}, {"BF16", {1e-4, 1e-4, 0.018, 0.018}}, {"Q8_0", {1e-4, 1.8e-3, 0.0095, 0.011}}};
  return all;
}

}  // namespace quire::tiny
