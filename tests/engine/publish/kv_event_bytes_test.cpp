// KV cache events as bytes: those that msgspec makes of vLLM's structs (tools/record_kv_event_bytes.py).
#include "engine/publish/kv_event_bytes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

namespace quire {
namespace {

std::vector<std::string> recorded() {
  std::ifstream file("tests/golden/kv_event_bytes.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

KvEventHash hash_of(std::uint32_t number) {
  KvEventHash hash;
  for (std::uint32_t i = 0; i < 32; ++i) hash.push_back(static_cast<std::uint8_t>(number * 37 + i * 11));
  return hash;
}

std::vector<std::uint8_t> counting() {
  std::vector<std::uint8_t> bytes;
  for (std::uint8_t i = 0; i < 32; ++i) bytes.push_back(i);
  return bytes;
}

std::string batch(double time_s, const std::vector<KvEvent>& events, std::uint32_t rank, KvHashForm form) {
  std::string out;
  append_event_batch(out, time_s, events, rank, form);
  return hex(out);
}

TEST(KvEventBytes, AreThoseOfVllm) {
  const std::vector<std::string> wanted = recorded();
  ASSERT_EQ(wanted.size(), 7U);
  std::vector<TokenId> tokens = {0, 1, 127, 128, 255, 256, 65535, 65536, INT32_MAX, -1, -32, -33, -128, -129, -32768, -32769};
  BlockStored first;
  first.block_hashes = {hash_of(1)};
  first.token_ids = tokens;
  first.block_size = 16;
  first.extra_keys.emplace().emplace_back();
  tokens.insert(tokens.end(), tokens.begin(), tokens.begin() + 16);
  BlockStored second;
  second.block_hashes = {hash_of(2), hash_of(3)};
  second.parent_block_hash = hash_of(1);
  second.token_ids = tokens;
  second.block_size = 16;
  second.lora_id = 7;
  second.medium = "CPU";
  second.lora_name = "adapter";
  std::string images;
  for (int i = 0; i < 20; ++i) images += "image";
  second.extra_keys.emplace();
  second.extra_keys->push_back(KvExtraKeys{"adapter", MultimodalKey{images, -5}, MultimodalKey{"x", 70000}, "salt", counting()});
  second.extra_keys->emplace_back();
  const std::vector<KvEvent> ends = {BlockRemoved{.block_hash = hash_of(4)}, BlockRemoved{.block_hash = hash_of(5), .medium = "DISK"},
                                     AllBlocksCleared{}};
  std::size_t at = 0;
  for (const KvHashForm form : {KvHashForm::integer, KvHashForm::bytes}) {
    EXPECT_EQ(batch(1.5, {first}, 0, form), wanted[at++]);
    EXPECT_EQ(batch(1764000000.25, {second}, 0, form), wanted[at++]);
    EXPECT_EQ(batch(2.0, ends, 0, form), wanted[at++]);
  }
  BlockStored large;
  large.parent_block_hash = hash_of(0);
  large.token_ids.resize(70'000);
  large.block_size = 3500;
  for (std::uint32_t i = 0; i < 20; ++i) large.block_hashes.push_back(hash_of(i));
  EXPECT_TRUE(batch(0.0, {large}, 3, KvHashForm::integer) == wanted[at]) << "more tokens than 16 bits count";
}

}  // namespace
}  // namespace quire
