#pragma once
// The tensors of small models: bytes drawn from a tensor's name and its type alone, the same here and in tools/record/logits.py.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "format/dequant.h"
#include "format/ggml_type.h"
#include "runtime/model/weights/tensor_names.h"

namespace quire::tiny {

struct Tensor {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::vector<std::uint64_t> shape;  // outermost first
  std::string bytes;
  std::string dtype = {};  // type in a safetensors file if GGUF does not have it
};

inline std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t value = 0xCBF29CE484222325ULL;
  for (const char c : text) value = (value ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  return value;
}

template <class T>
void append(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

// Converts values that f16 represents exactly.
inline std::uint16_t f16_bits(float value) {
  if (value == 0.0F) return 0;
  int exponent = 0;
  const float mantissa = std::frexp(std::fabs(value), &exponent);
  const std::uint32_t sign = value < 0.0F ? 0x8000U : 0U;
  if (exponent < -13) return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::ldexp(std::fabs(value), 24)));
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent + 14) << 10 |
                                    static_cast<std::uint32_t>((2.0F * mantissa - 1.0F) * 1024.0F));
}

// Routers are floats in every file.
inline bool is_routing(std::string_view name) {
  for (const char* end :
       {"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "mlp.gate.weight", "shared_expert_gate.weight", "block_sparse_moe.gate.weight",
        "router.layer.weight", "mlp.router.weight", "mlp.gate.wg.weight", "feed_forward.gate.weight", "mixer.gate.weight"})
    if (name.ends_with(end)) return true;
  return false;
}

// Values of routers and sinks are large, so that hardly two experts have similar scores.
inline int exponent_of(std::string_view name) {
  if (is_routing(name) || name.ends_with("self_attn.sinks") || name.ends_with("attn_sinks.weight") || name.ends_with("ssm_a")) return 1;
  for (const char* end : {"token_embd.weight", "embed_tokens.weight"})
    if (name.ends_with(end)) return 0;
  return -3;
}

inline bool is_norm(std::string_view name) {
  for (const char* end : {"norm.weight", ".norm1.weight", ".norm2.weight", ".ln_q.weight"})
    if (name.ends_with(end)) return true;
  return false;
}

inline std::string float_bytes(const std::string& name, GgmlType type, std::uint64_t count) {
  Random random(fnv1a(name));
  const int bits = type == GgmlType::f32 ? 24 : type == GgmlType::f16 ? 11 : 8;
  const int exponent = name.ends_with("bias") ? -1 : exponent_of(name);
  std::string out;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t word = random.next();
    const auto steps = static_cast<std::int64_t>(word >> (64 - bits)) - (std::int64_t{1} << (bits - 1));
    float value = std::ldexp(static_cast<float>(steps), exponent - bits + 1);
    if (name.ends_with("ssm_a")) value = -(std::fabs(value) + 0x1p-10F);  // states decay
    if (is_norm(name)) value = 1.0F + static_cast<float>(static_cast<std::int64_t>(word >> 59) - 16) / 64.0F;
    if (type == GgmlType::f32) append(out, value);
    if (type == GgmlType::f16) append(out, f16_bits(value));
    if (type == GgmlType::bf16) append(out, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  return out;
}

// An f16 scale in a block: its offset, its exponent relative to the tensor's, its sign.
struct ScaleField {
  std::uint32_t offset;
  int below;
  std::uint32_t sign;
};

inline std::vector<ScaleField> scale_fields(GgmlType type) {
  switch (type) {
    case GgmlType::q8_0:
      return {{0, -7, 0}};
    case GgmlType::q4_0:
      return {{0, -3, 0}};
    case GgmlType::q4_1:
      return {{0, -3, 0}, {2, 0, 1}};
    case GgmlType::q4_k:
      return {{0, -9, 0}, {2, -6, 0}};
    case GgmlType::q5_k:
      return {{0, -10, 0}, {2, -6, 0}};
    case GgmlType::q6_k:
      return {{208, -12, 0}};
    case GgmlType::q2_k:
      return {{80, -5, 0}, {82, -5, 0}};
    case GgmlType::q3_k:
      return {{108, -7, 0}};
    case GgmlType::iq4_nl:
      return {{0, -7, 0}};
    case GgmlType::iq4_xs:
      return {{0, -12, 0}};
    case GgmlType::iq1_s:
      return {{0, -4, 0}};
    case GgmlType::iq2_xs:
      return {{0, -8, 0}};
    case GgmlType::iq3_s:
      return {{0, -9, 0}};
    case GgmlType::tq1_0:
      return {{52, 0, 0}};
    case GgmlType::mxfp4:
      return {};
    default:
      QUIRE_CHECK(false, "no such blocks");
  }
}

inline std::string block_bytes(const std::string& name, GgmlType type, std::uint64_t count) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  Random random(fnv1a(name));
  std::string out;
  for (std::uint64_t block = 0; block < count / info.block_columns; ++block) {
    std::string raw;
    while (raw.size() < info.block_bytes) append(raw, random.next());
    raw.resize(info.block_bytes);
    if (type == GgmlType::mxfp4) raw[0] = static_cast<char>(127 + exponent_of(name) - 2 - (raw[0] & 1));  // the exponent is one byte
    for (const ScaleField& field : scale_fields(type)) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, raw.data() + field.offset, 2);
      const auto exponent = static_cast<std::uint32_t>(exponent_of(name) + field.below + 15);
      bits = static_cast<std::uint16_t>((bits & 0x3FFU) | exponent << 10 | field.sign << 15);
      std::memcpy(raw.data() + field.offset, &bits, 2);
    }
    out += raw;
  }
  return out;
}

inline Tensor make_tensor(std::string name, GgmlType type, std::vector<std::uint64_t> shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  const bool is_float = ggml_type_info(type).block_columns == 1;
  std::string bytes = is_float ? float_bytes(name, type, count) : block_bytes(name, type, count);
  return {std::move(name), type, std::move(shape), std::move(bytes)};
}

inline GgmlType type_named(std::string_view name) {
  for (const GgmlType type : {GgmlType::f32, GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_1, GgmlType::q4_k,
                              GgmlType::q5_k, GgmlType::q6_k, GgmlType::q2_k, GgmlType::q3_k, GgmlType::iq4_nl, GgmlType::iq4_xs,
                              GgmlType::iq1_s, GgmlType::iq2_xs, GgmlType::iq3_s, GgmlType::tq1_0, GgmlType::mxfp4}) {
    if (ggml_type_name(type) == name) return type;
  }
  QUIRE_CHECK(false, "no such type");
}

// "mixed" resembles Q4_K_M files.
inline GgmlType matrix_type(std::string_view kind, std::string_view gguf_name) {
  if (is_routing(gguf_name))
    return type_named(ggml_type_info(kind == "mixed" ? GgmlType::q4_k : type_named(kind)).block_columns > 1 ? "F32" : kind);
  if (kind != "mixed") return type_named(kind);
  if (gguf_name.starts_with("token_embd")) return GgmlType::q8_0;
  const bool better =
      gguf_name.starts_with("output") || gguf_name.find("attn_v") != gguf_name.npos || gguf_name.find("ffn_down") != gguf_name.npos;
  return better ? GgmlType::q6_k : GgmlType::q4_k;
}

inline Tensor factor_tensor(TensorRole role, const std::vector<float>& factors) {
  std::string bytes;
  for (const float factor : factors) append(bytes, factor);
  return {gguf_tensor_name(role, 0), GgmlType::f32, {factors.size()}, bytes};
}

}  // namespace quire::tiny
