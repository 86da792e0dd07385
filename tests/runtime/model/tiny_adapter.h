#pragma once
// LoRA adapters of small models in PEFT's format. Like the models' tensors, theirs are drawn from their names.
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/tiny_model.h"

namespace quire::tiny {

inline constexpr const char* kAdapterPrefix = "base_model.model.";

// Adds both matrices of each module's pair; `seed` gives other values for the same names.
struct AdapterTensors {
  std::vector<Tensor> all;
  std::string seed{};

  void add(const std::string& module, std::uint64_t outputs, std::uint64_t inputs, std::uint64_t rank) {
    put(kAdapterPrefix + module + ".lora_A.weight", {rank, inputs});
    put(kAdapterPrefix + module + ".lora_B.weight", {outputs, rank});
  }
  void add_embedding(std::uint64_t vocab_size, std::uint64_t hidden_size, std::uint64_t rank) {
    put(std::string(kAdapterPrefix) + "model.embed_tokens.lora_embedding_A", {rank, vocab_size});
    put(std::string(kAdapterPrefix) + "model.embed_tokens.lora_embedding_B", {hidden_size, rank});
  }
  void put(const std::string& name, std::vector<std::uint64_t> shape) {
    Tensor tensor = make_tensor(name + seed, GgmlType::f32, std::move(shape));
    tensor.name = name;
    all.push_back(std::move(tensor));
  }
};

// Makes an adapter of all linear layers except experts.
inline AdapterTensors adapter_of(const ModelConfig& c, std::uint64_t rank, std::string seed = {}) {
  AdapterTensors made{.all = {}, .seed = std::move(seed)};
  const auto module = [&c](TensorRole role, std::uint32_t layer) {
    std::string name = hf_tensor_name(role, layer, 0, c.tensor_names);
    name.resize(name.size() - std::string_view(".weight").size());
    return name;
  };
  for (std::uint32_t layer = 0; layer < c.num_layers; ++layer) {
    const LayerMemory memory = c.layer(layer).memory;
    if (memory != LayerMemory::attention) {
      made.add(module(TensorRole::state_input, layer), c.state_input_size(), c.hidden_size, rank);
      made.add(module(TensorRole::state_output, layer), c.hidden_size, c.state_output_size(), rank);
      if (c.state.kind == StateKind::gated_delta)
        made.add(module(TensorRole::state_rates, layer), 2 * std::uint64_t{c.state.heads}, c.hidden_size, rank);
    }
    if (memory != LayerMemory::state) {
      made.add(module(TensorRole::q, layer), (c.gated_attention ? 2U : 1U) * c.q_size(), c.hidden_size, rank);
      made.add(module(TensorRole::k, layer), c.kv_size(), c.hidden_size, rank);
      made.add(module(TensorRole::v, layer), c.kv_size(), c.hidden_size, rank);
      made.add(module(TensorRole::attn_output, layer), c.hidden_size, c.q_size(), rank);
    }
    if (const std::uint32_t experts = c.layer(layer).num_experts; experts > 0) {
      const auto of_expert = [](TensorRole role, std::uint32_t i, std::uint32_t expert) {
        std::string name = hf_tensor_name(role, i, expert);
        name.resize(name.size() - std::string_view(".weight").size());
        return name;
      };
      for (std::uint32_t i = 0; i < experts; ++i) {
        made.add(of_expert(TensorRole::expert_gate, layer, i), c.expert_size, c.hidden_size, rank);
        made.add(of_expert(TensorRole::expert_up, layer, i), c.expert_size, c.hidden_size, rank);
        made.add(of_expert(TensorRole::expert_down, layer, i), c.hidden_size, c.expert_size, rank);
      }
      continue;
    }
    if (c.tensor_names == &kGraniteNames) {
      made.add(module(TensorRole::gate_up, layer), 2 * std::uint64_t{c.intermediate_size}, c.hidden_size, rank);
    } else {
      made.add(module(TensorRole::gate, layer), c.intermediate_size, c.hidden_size, rank);
      made.add(module(TensorRole::up, layer), c.intermediate_size, c.hidden_size, rank);
    }
    made.add(module(TensorRole::down, layer), c.hidden_size, c.intermediate_size, rank);
  }
  return made;
}

inline boost::json::object adapter_config(std::uint64_t rank, double alpha) {
  return {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"bias", "none"}};
}

inline void write_adapter(const std::string& folder, const boost::json::value& config, const std::vector<Tensor>& tensors) {
  std::filesystem::create_directories(folder);
  write_file(folder + "/adapter_config.json", boost::json::serialize(config));
  write_file(folder + "/adapter_model.safetensors", safetensors_file(tensors));
}

}  // namespace quire::tiny
