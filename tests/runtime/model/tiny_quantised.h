#pragma once
// Small models whose matrices are quantised like in Hugging Face folders. tools/record/quantised_logits.py draws the same tensors from the
// same descriptions.
#include <algorithm>
#include <boost/json/value.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/tiny_model.h"

namespace quire::tiny {

// Evaluates a size: "r/8" is the number of rows over 8, rounded up; "2/1" is 2.
inline std::uint64_t size_of(std::string_view text, std::uint64_t rows, std::uint64_t columns) {
  const std::uint64_t divisor = std::stoull(std::string(text.substr(text.find('/') + 1)));
  if (text[0] != 'r' && text[0] != 'c') return std::stoull(std::string(text));
  return ((text[0] == 'r' ? rows : columns) + divisor - 1) / divisor;
}

// Assigns columns to groups of equal size, in a drawn order.
inline std::string group_bytes(const std::string& seed, std::uint64_t columns, std::uint64_t group) {
  Random random(fnv1a(seed));
  std::vector<std::uint64_t> words(columns);
  for (std::uint64_t& word : words) word = random.next();
  std::vector<std::uint32_t> order(columns);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t column) { return std::pair(words[column], column); });
  std::vector<std::int32_t> groups(columns);
  for (std::uint64_t i = 0; i < columns; ++i) groups[order[i]] = static_cast<std::int32_t>(i / group);
  std::string out;
  for (const std::int32_t one : groups) append(out, one);
  return out;
}

// Matrices with the same input may share the order of their columns.
inline std::string order_seed(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  std::string last = module.substr(dot + 1);
  if (last == "q_proj" || last == "k_proj" || last == "v_proj") last = "qkv";
  if (last == "gate_proj" || last == "up_proj") last = "gate_up";
  return module.substr(0, dot + 1) + last + ".order";
}

inline void append_scale(std::string& out, std::string_view dtype, std::uint64_t word, int exponent) {
  if (dtype == "F32") return append(out, static_cast<std::uint32_t>((word & 0x7FFFFFU) | static_cast<std::uint32_t>(exponent + 127) << 23));
  const bool is_half = dtype == "F16";
  const auto mantissa = static_cast<std::uint32_t>(word) & (is_half ? 0x3FFU : 0x7FU);
  const std::uint32_t bits = is_half ? static_cast<std::uint32_t>(exponent + 15) << 10 : static_cast<std::uint32_t>(exponent + 127) << 7;
  append(out, static_cast<std::uint16_t>(mantissa | bits));
}

// `spec` is one of a case's tensors.
inline Tensor quantised_part(const std::string& module, const boost::json::value& spec, std::uint64_t rows, std::uint64_t columns) {
  Tensor tensor{module + "." + std::string(spec.at("end").as_string()), GgmlType::f32, {}, {}, std::string(spec.at("dtype").as_string())};
  std::uint64_t count = 1;
  for (const auto& size : spec.at("shape").as_array()) {
    tensor.shape.push_back(size_of(std::string(size.as_string()), rows, columns));
    count *= tensor.shape.back();
  }
  const std::string_view kind = spec.at("kind").as_string();
  if (kind == "shape") {
    append(tensor.bytes, rows);
    append(tensor.bytes, columns);
    return tensor;
  }
  if (kind == "groups") {
    const std::string seed = spec.at("shared").as_bool() ? order_seed(module) : tensor.name;
    tensor.bytes = group_bytes(seed, columns, spec.at("group").to_number<std::uint64_t>());
    return tensor;
  }
  Random random(fnv1a(tensor.name));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t word = random.next();
    auto byte = static_cast<std::uint8_t>(word >> 56);
    if (kind == "e4m3" && (byte & 0x7FU) == 0x7F) byte ^= 0x40U;
    if (kind == "constant") append(tensor.bytes, spec.at("word").to_number<std::uint32_t>());
    if (kind == "words") append(tensor.bytes, static_cast<std::uint32_t>(word >> 32));
    if (kind == "bytes" || kind == "e4m3") append(tensor.bytes, byte);
    if (kind == "powers") append(tensor.bytes, static_cast<std::uint8_t>((word >> 62) + 119));
    if (kind == "small") append(tensor.bytes, static_cast<std::uint8_t>((word >> 60) - 8));
    if (kind == "scale") append_scale(tensor.bytes, tensor.dtype, word, spec.at("exponent").to_number<int>());
  }
  return tensor;
}

// Quantises each matrix of a layer as `parts` describe, except matrices whose name contains an entry of `left`.
inline std::vector<Tensor> quantise(const std::vector<Tensor>& tensors, const boost::json::array& parts, const boost::json::array& left) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : tensors) {
    constexpr std::string_view kEnd = ".weight";
    const bool is_left =
        std::ranges::any_of(left, [&](const auto& text) { return tensor.name.find(std::string(text.as_string())) != std::string::npos; });
    if (!tensor.name.ends_with("proj.weight") || is_left) {
      out.push_back(tensor);
      continue;
    }
    const std::string module = tensor.name.substr(0, tensor.name.size() - kEnd.size());
    for (const auto& part : parts) out.push_back(quantised_part(module, part, tensor.shape[0], tensor.shape[1]));
  }
  return out;
}

}  // namespace quire::tiny
