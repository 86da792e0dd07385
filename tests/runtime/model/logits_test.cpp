// Logits against transformers, on small models of every architecture and weight type (tools/record_logits.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "format/json.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

struct Case {
  std::string name;
  std::string container;
  std::string type;
  boost::json::value config;
  std::vector<float> rope_factors;
  std::uint32_t max_model_len = 128;
  std::vector<float> logits;  // [position][vocab]
};

struct Record {
  std::vector<TokenId> prompt;
  std::vector<std::uint32_t> positions;
  std::vector<Case> cases;
};

template <class T>
std::vector<T> numbers(const boost::json::value& array) {
  std::vector<T> out;
  for (const auto& value : array.as_array()) out.push_back(value.to_number<T>());
  return out;
}

// `name` is before both files' names.
Record read_record(const std::string& name) {
  Record record;
  const auto json = read_json_file("tests/golden/logits/" + name + "cases.json");
  EXPECT_TRUE(json) << (json ? "" : json.error().to_string());
  record.prompt = numbers<TokenId>(json->at("prompt"));
  record.positions = numbers<std::uint32_t>(json->at("positions"));
  std::ifstream logits("tests/golden/logits/" + name + "logits.f32", std::ios::binary);
  for (const auto& value : json->at("cases").as_array()) {
    Case c{std::string(value.at("name").as_string()),
           std::string(value.at("container").as_string()),
           std::string(value.at("type").as_string()),
           value.at("config"),
           {},
           128,
           {}};
    if (const auto* factors = value.as_object().if_contains("rope_factors")) c.rope_factors = numbers<float>(*factors);
    if (const auto* served = value.as_object().if_contains("max_model_len")) c.max_model_len = served->to_number<std::uint32_t>();
    c.logits.resize(record.positions.size() * c.config.at("vocab_size").to_number<std::size_t>());
    logits.read(reinterpret_cast<char*>(c.logits.data()), static_cast<std::streamsize>(c.logits.size() * sizeof(float)));
    EXPECT_TRUE(logits.good());
    record.cases.push_back(std::move(c));
  }
  return record;
}

// Writes the case's model; its path.
std::string write_model(const Case& c, const tiny::TempFolder& folder) {
  const auto config = config_from_hf(JsonRef(c.config, c.name));
  EXPECT_TRUE(config) << (config ? "" : config.error().to_string());
  auto tensors = tiny::make_tensors(*config, c.container == "gguf", c.type);
  const std::string path = folder.file(c.name);
  if (c.container == "hf") {
    tiny::write_hf_folder(path, c.config, tensors);
    return path;
  }
  if (!c.rope_factors.empty()) tensors.push_back(tiny::factor_tensor(TensorRole::rope_factors, c.rope_factors));
  tiny::write_file(path, tiny::gguf_header(*config).file(tensors));
  return path;
}

double standard_deviation(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Largest difference over the standard deviation of the record.
double difference(const Record& record, const Case& c, const std::string& path, ActivationMode mode, KvDtype kv) {
  tiny::Rig rig(path, {.activations = mode, .kv = kv, .max_tokens = c.max_model_len});
  const auto tokens = static_cast<std::uint32_t>(record.prompt.size());
  rig.give_blocks(Slot{0}, tiny::blocks_for(tokens, 16, 3, 2));
  const auto logits = rig.run(record.prompt, {{Slot{0}, 0, tokens}});
  double largest = 0.0;
  for (std::size_t i = 0; i < record.positions.size(); ++i) {
    for (std::size_t n = 0; n < rig.vocab(); ++n) {
      const double error = std::fabs(logits[record.positions[i] * rig.vocab() + n] - c.logits[i * rig.vocab() + n]);
      largest = std::isnan(error) ? INFINITY : std::max(largest, error);
    }
  }
  return largest / standard_deviation(c.logits);
}

// Largest difference allowed per weight type: about four times what floats show and twice what is served shows, over all models. The bits
// are the same on every machine, so a number that grows has a cause.
struct Bounds {
  double floats, int16, bf16_kv, served;
};

const std::map<std::string, Bounds>& bounds() {
  static const std::map<std::string, Bounds> all{
      {"F32", {2e-5, 2e-5, 0.032, 0.032}},        {"F16", {2e-5, 2e-5, 0.046, 0.046}},    {"BF16", {2e-5, 2e-5, 0.038, 0.038}},
      {"Q8_0", {4.8e-5, 1.4e-3, 0.09, 0.09}},     {"Q4_0", {1.5e-5, 7e-4, 0.04, 0.04}},   {"Q4_1", {2.8e-5, 8e-4, 0.05, 0.05}},
      {"Q4_K", {1e-4, 1.1e-3, 0.11, 0.11}},       {"Q5_K", {9e-5, 6e-4, 0.28, 0.28}},     {"Q6_K", {2e-5, 8.5e-4, 0.034, 0.034}},
      {"mixed", {3.7e-5, 1.7e-3, 0.075, 0.075}},  {"Q2_K", {5e-6, 5e-5, 1.2e-3, 1.2e-3}}, {"Q3_K", {2e-5, 8e-4, 0.034, 0.034}},
      {"IQ4_NL", {1.6e-5, 1.1e-3, 0.034, 0.034}}, {"IQ4_XS", {2e-5, 1e-3, 0.027, 0.027}}};
  return all;
}

void expect_logits_of(const Record& record) {
  const tiny::TempFolder folder;
  struct Worst {
    double plain = 0.0, int16 = 0.0, bf16_kv = 0.0, served = 0.0;
  };
  std::map<std::string, Worst> worst;
  for (const Case& c : record.cases) {
    const std::string path = write_model(c, folder);
    Worst& w = worst[c.type];
    const Bounds& bound = bounds().at(c.type);
    const auto measure = [&](ActivationMode mode, KvDtype kv, double most, double& so_far) {
      const double found = difference(record, c, path, mode, kv);
      EXPECT_LE(found, most) << c.name << ", int16 activations " << (mode == ActivationMode::int16) << ", bf16 KV "
                             << (kv == KvDtype::bf16);
      so_far = std::max(so_far, found);
    };
    measure(ActivationMode::f32, KvDtype::f32, bound.floats, w.plain);
    measure(ActivationMode::int16, KvDtype::f32, bound.int16, w.int16);
    measure(ActivationMode::f32, KvDtype::bf16, bound.bf16_kv, w.bf16_kv);
    measure(ActivationMode::int16, KvDtype::bf16, bound.served, w.served);
    std::filesystem::remove_all(path);
  }
  std::printf("largest |difference| / std(logits) over %zu models\n", record.cases.size());
  std::printf("%-6s %14s %14s %14s %14s\n", "type", "f32 act f32 kv", "int16 act", "bf16 kv", "both");
  for (const auto& [type, w] : worst)
    std::printf("%-6s %14.2g %14.2g %14.2g %14.2g\n", type.c_str(), w.plain, w.int16, w.bf16_kv, w.served);
}

TEST(Logits, MatchTransformersOnEveryArchitectureAndType) {
  expect_logits_of(read_record(""));
}

// Mistral, Qwen2's mix, Gemma 2 and Gemma 3, beyond their windows (tools/record_window_logits.py).
TEST(Logits, MatchTransformersInWindows) {
  expect_logits_of(read_record("window_"));
}

}  // namespace
}  // namespace quire
