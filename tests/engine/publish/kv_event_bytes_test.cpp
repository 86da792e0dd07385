// KV cache events as bytes must equal msgspec's encoding of vLLM's structs (tools/record/kv_event_bytes.py).
#include "engine/publish/kv_event_bytes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

std::string batch(double time_s, const std::vector<KvEvent>& events, std::uint32_t rank, const KvEventEncoding& encoding) {
  std::string out;
  append_event_batch(out, time_s, events, rank, encoding);
  return hex(out);
}

// An event for two blocks on disk.
BlockStored moved_down() {
  BlockStored stored;
  stored.block_hashes = {hash_of(6), hash_of(7)};
  stored.block_size = 16;
  stored.medium = "DISK";
  stored.group_idx = 1;
  return stored;
}

TEST(KvEventBytes, EqualVllmsBytes) {
  const std::vector<std::string> wanted = recorded();
  ASSERT_EQ(wanted.size(), 15U);
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
  second.group_idx = 1;
  second.lora_id = 7;
  second.medium = "CPU";
  second.lora_name = "adapter";
  std::string images;
  for (int i = 0; i < 20; ++i) images += "image";
  second.extra_keys.emplace();
  second.extra_keys->push_back(KvExtraKeys{"adapter", MultimodalKey{images, -5}, MultimodalKey{"x", 70000}, "salt", counting()});
  second.extra_keys->emplace_back();
  const std::vector<KvEvent> ends = {BlockRemoved{.block_hash = hash_of(4)},
                                     BlockRemoved{.block_hash = hash_of(5), .medium = "DISK", .group_idx = 1}, AllBlocksCleared{}};
  BlockStored large;
  large.parent_block_hash = hash_of(0);
  large.token_ids.resize(70'000);
  large.block_size = 3500;
  for (std::uint32_t i = 0; i < 20; ++i) large.block_hashes.push_back(hash_of(i));
  KvEventEncoding encoding{.groups = kv_event_groups(std::vector<KvCacheGroup>{
                               {.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}},
                               {.layer_names = {}, .spec = SlidingWindowSpec{{}, 128}, .layer_specs = {}},
                           })};
  std::size_t at = 0;
  for (const KvEventFormat format : {KvEventFormat::vllm_0_19_0, KvEventFormat::vllm_0_32_0}) {
    encoding.format = format;
    for (const KvHashForm form : {KvHashForm::integer, KvHashForm::bytes}) {
      encoding.hashes = form;
      EXPECT_EQ(batch(1.5, {first}, 0, encoding), wanted[at++]);
      EXPECT_EQ(batch(1764000000.25, {second}, 0, encoding), wanted[at++]);
      EXPECT_EQ(batch(2.0, ends, 0, encoding), wanted[at++]);
      if (format == KvEventFormat::vllm_0_32_0) EXPECT_EQ(batch(3.0, {moved_down()}, 0, encoding), wanted[at++]);
    }
    if (format == KvEventFormat::vllm_0_32_0) continue;
    encoding.hashes = KvHashForm::integer;
    EXPECT_TRUE(batch(0.0, {large}, 3, encoding) == wanted[at++]) << "more tokens than 16 bits count";
  }
}

// vLLM's get_kv_cache_spec_kind and get_kv_cache_spec_sliding_window.
TEST(KvEventBytes, UseVllmsGroupKinds) {
  const LayerKvSpec mla = MlaAttentionSpec{};
  const LayerKvSpec full = FullAttentionSpec{};
  const LayerKvSpec window = SlidingWindowSpec{{}, 5};
  const LayerKvSpec other_window = SlidingWindowSpec{{}, 9};
  const auto group_of = [](const LayerKvSpec& spec, std::vector<LayerKvSpec> layers) {
    return kv_event_groups(std::vector<KvCacheGroup>{{.layer_names = {}, .spec = spec, .layer_specs = std::move(layers)}}).front();
  };
  EXPECT_EQ(group_of(full, {}), (KvEventGroup{"full_attention", std::nullopt}));
  EXPECT_EQ(group_of(window, {}), (KvEventGroup{"sliding_window", 5}));
  EXPECT_EQ(group_of(MambaSpec{}, {}), (KvEventGroup{"mamba", std::nullopt}));
  EXPECT_EQ(group_of(mla, {mla, mla}), (KvEventGroup{"mla_attention", std::nullopt}));
  EXPECT_EQ(group_of(mla, {mla, full}), (KvEventGroup{"full_attention", std::nullopt}));
  const LayerKvSpec sink = SinkFullAttentionSpec{};
  for (const auto& [spec, kind] : std::vector<std::pair<LayerKvSpec, const char*>>{{sink, "sink_full_attention"},
                                                                                   {ChunkedLocalSpec{}, "chunked_local_attention"},
                                                                                   {CrossAttentionSpec{}, "cross_attention"},
                                                                                   {EncoderOnlySpec{}, "encoder_only_attention"}})
    EXPECT_EQ(group_of(spec, {}), (KvEventGroup{kind, std::nullopt}));
  EXPECT_EQ(group_of(full, {full, window}), (KvEventGroup{"unknown", std::nullopt}));
  EXPECT_EQ(group_of(sink, {sink, full, mla}), (KvEventGroup{"full_attention", std::nullopt}));
  EXPECT_EQ(group_of(window, {window, window}), (KvEventGroup{"sliding_window", 5}));
  EXPECT_EQ(group_of(window, {window, full}), (KvEventGroup{"unknown", std::nullopt}));
  EXPECT_EQ(group_of(window, {window, other_window}), (KvEventGroup{"sliding_window", std::nullopt}))
      << "layers with different windows report none";
}

// Returns `number` in `size` bytes, big endian.
std::string big_endian_hex(std::uint64_t number, std::size_t size) {
  std::string text;
  for (std::size_t i = size; i-- > 0;) text += fmt::format("{:02x}", (number >> (8 * i)) & 0xff);
  return text;
}

BlockStored empty_block() {
  BlockStored stored;
  stored.medium.clear();
  return stored;
}

// The array's fields before lora_id: "BlockStored", no hashes, no parent, no tokens, block size 0.
constexpr std::string_view kBeforeLora = "99ab426c6f636b53746f72656490c09000";

TEST(KvEventBytes, IntegersHaveTheirShortestForm) {
  struct Case {
    std::int64_t number;
    const char* tag;
    std::size_t size;
  };
  for (const Case& one : {Case{0, "", 1},
                          {127, "", 1},
                          {128, "cc", 1},
                          {255, "cc", 1},
                          {256, "cd", 2},
                          {65'535, "cd", 2},
                          {65'536, "ce", 4},
                          {UINT32_MAX, "ce", 4},
                          {std::int64_t{UINT32_MAX} + 1, "cf", 8},
                          {INT64_MAX, "cf", 8},
                          {-1, "", 1},
                          {-32, "", 1},
                          {-33, "d0", 1},
                          {-128, "d0", 1},
                          {-129, "d1", 2},
                          {-32'768, "d1", 2},
                          {-32'769, "d2", 4},
                          {INT32_MIN, "d2", 4},
                          {std::int64_t{INT32_MIN} - 1, "d3", 8}}) {
    BlockStored stored = empty_block();
    stored.lora_id = one.number;
    EXPECT_TRUE(
        batch(0.0, {stored}, 0, {})
            .contains(fmt::format("{}{}{}a0", kBeforeLora, one.tag, big_endian_hex(static_cast<std::uint64_t>(one.number), one.size))))
        << one.number;
  }
  EXPECT_TRUE(batch(0.0, {}, UINT32_MAX, {}).ends_with("90ceffffffff")) << "the rank";
}

TEST(KvEventBytes, TextsAndBytesHaveTheShortestHead) {
  struct Case {
    std::size_t size;
    std::string text_head, bytes_head;
  };
  for (const Case& one : {Case{0, "a0", "c400"},
                          {31, "bf", "c41f"},
                          {32, "d920", "c420"},
                          {255, "d9ff", "c4ff"},
                          {256, "da0100", "c50100"},
                          {65'535, "daffff", "c5ffff"},
                          {65'536, "db00010000", "c600010000"}}) {
    BlockStored stored = empty_block();
    stored.medium.assign(one.size, 'x');
    stored.extra_keys = {KvExtraKeys{std::vector<std::uint8_t>(one.size, 'y')}};
    std::string wanted = one.text_head, key = one.bytes_head;
    for (std::size_t i = 0; i < one.size; ++i) {
      wanted += "78";
      key += "79";
    }
    // After the medium: no adapter's name, one block with one key, and the rank.
    EXPECT_TRUE(batch(0.0, {stored}, 0, {}).ends_with(fmt::format("{}c0{}c09191{}00", kBeforeLora, wanted, key))) << one.size;
  }
}

TEST(KvEventBytes, ArraysHaveTheShortestHead) {
  for (const auto& [size, head] : {std::pair(0, "90"), {15, "9f"}, {16, "dc0010"}, {65'535, "dcffff"}, {65'536, "dd00010000"}}) {
    BlockStored stored = empty_block();
    stored.token_ids.assign(static_cast<std::size_t>(size), 1);
    const std::string bytes = batch(0.0, {stored}, 0, {});
    std::string tokens;
    for (int i = 0; i < size; ++i) tokens += "01";
    EXPECT_TRUE(bytes.contains(fmt::format("{}{}{}00c0a0", kBeforeLora.substr(0, 30), head, tokens))) << size;
  }
}

TEST(KvEventBytes, AHashNumberIsItsLastEightBytes) {
  for (const auto& [size, number] : {std::pair(0, "00"), {1, "01"}, {8, "cf0102030405060708"}, {9, "cf0203040506070809"}}) {
    KvEventHash hash;
    for (int i = 1; i <= size; ++i) hash.push_back(static_cast<std::uint8_t>(i));
    const std::string bytes = batch(0.0, {BlockRemoved{.block_hash = hash, .medium = ""}}, 0, {});
    EXPECT_TRUE(bytes.ends_with(fmt::format("91{}a000", number))) << size << ' ' << bytes;
  }
}

// A group without an entry is reported by its index alone.
TEST(KvEventBytes, ReportAGroupWithoutDescriptionByItsIndex) {
  BlockStored stored;
  stored.token_ids = {1};
  stored.block_size = 1;
  stored.group_idx = 3;
  const std::string bytes = batch(0.0, {stored}, 0, {.format = KvEventFormat::vllm_0_32_0, .hashes = KvHashForm::integer, .groups = {}});
  EXPECT_TRUE(bytes.contains("a967726f75705f69647803")) << "\"group_idx\" and 3";
  EXPECT_FALSE(bytes.contains("6b76")) << "kv_cache_spec_kind";
}

}  // namespace
}  // namespace quire
