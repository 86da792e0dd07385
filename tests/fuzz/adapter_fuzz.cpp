// Reads any bytes as the two files of an adapter (the length of the config in two bytes, the config, the weights). The result is an adapter
// of the model's shape with finite numbers only, or an error.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "fuzz/subject.h"
#include "runtime/model/weights/adapter.h"

namespace {

quire::ModelConfig small_model() {
  quire::ModelConfig c;
  c.architecture = "llama";
  c.num_layers = 2;
  c.hidden_size = 4;
  c.intermediate_size = 6;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = c.rotary_dim = 4;
  c.vocab_size = 5;
  c.rope_style = quire::RopeStyle::interleaved;
  return c;
}

void check(const quire::LoraPair& pair, std::uint32_t inputs, std::uint32_t outputs) {
  if (!pair.any()) return;
  QUIRE_CHECK(pair.a.columns == inputs && pair.b.rows == outputs && pair.a.rows == pair.b.columns, "a pair of another shape");
  for (const quire::PackedMatrix* matrix : {&pair.a, &pair.b}) {
    const std::span values(reinterpret_cast<const float*>(matrix->storage.data()), matrix->storage.size() / sizeof(float));
    QUIRE_CHECK(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }), "a number that is none");
  }
}

}  // namespace

static quire::test::FuzzSubject subject("an adapter that fits the model");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const quire::ModelConfig model = small_model();
  if (size < 2) return 0;
  const std::span<const std::uint8_t> rest(data + 2, size - 2);
  const std::size_t length = std::min<std::size_t>(rest.size(), data[0] | data[1] << 8);
  const std::string_view config(reinterpret_cast<const char*>(rest.data()), length);
  const auto weights = quire::SafetensorsFile::parse(std::as_bytes(rest.subspan(length)), "fuzz");
  if (!weights) return 0;
  const auto adapter = quire::read_adapter(config, *weights, model, 16);
  if (!adapter) {
    QUIRE_CHECK(!adapter.error().message.empty() && !adapter.error().field.empty(), "an error has a field and a message");
    return 0;
  }
  subject.reached();
  QUIRE_CHECK(adapter->layers.size() == model.num_layers && adapter->rank > 0 && adapter->rank <= 16, "an adapter of another model");
  for (const quire::LayerAdapter& layer : adapter->layers) {
    for (const quire::LoraPair* pair : {&layer.q, &layer.k, &layer.v, &layer.attn_output}) check(*pair, 4, 4);
    for (const quire::LoraPair* pair : {&layer.gate, &layer.up}) check(*pair, 4, 6);
    check(layer.down, 6, 4);
  }
  check(adapter->head, 4, 5);
  return 0;
}
