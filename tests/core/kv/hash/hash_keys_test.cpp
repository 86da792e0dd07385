// Tests the bytes of blocks with extra keys: what Python's cbor2 and pickle write for (parent, tokens, keys). Each string is a separate
// object, except strings of one character.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/digest.h"
#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_encode.h"

namespace quire::test {
namespace {

constexpr std::array<std::uint8_t, 2> kParent{0xAA, 0xBB};
constexpr std::array<TokenId, 4> kTokens{1, 300, -2, 70000};

struct Keys {
  std::string what;
  std::string lora_name{};
  std::vector<MultimodalFeature> items{};
  std::string salt{};
  bool has_embeds = false;
  std::string lora_path{};
  bool tagged = true;
  std::string cbor{}, pickle{};

  [[nodiscard]] HashInput input() const {
    HashInput input{.tokens = kTokens,
                    .start = 16,
                    .lora_name = lora_name,
                    .multimodal = items,
                    .cache_salt = salt,
                    .embeds_digest = {},
                    .lora_path = lora_path,
                    .tagged_keys = tagged};
    if (has_embeds) {
      auto& digest = input.embeds_digest.emplace();
      std::iota(digest.begin(), digest.end(), std::uint8_t{0});
    }
    return input;
  }
};

std::vector<Keys> all_keys() {
  return {
      {.what = "all keys",
       .lora_name = "ada",
       .items = {{"img", PlaceholderRange(10, 8)}, {"pic", PlaceholderRange(19, 1)}},
       .salt = "salty",
       .has_embeds = true,
       .lora_path = "/a/b",
       .cbor = "8342aabb840119012c211a000111708583646c6f726163616461642f612f6283626d6d63696d672583626d6d637069630382"
               "6a63616368655f73616c746573616c7479826d70726f6d70745f656d626564735820000102030405060708090a0b0c0d0e0f"
               "101112131415161718191a1b1c1d1e1f",
       .pickle = "8005959d000000000000004302aabb94284b014d2c014afeffffff4a701101007494288c046c6f7261948c03616461948c04"
                 "2f612f629487948c026d6d948c03696d67944afaffffff879468068c03706963944b0387948c0a63616368655f73616c7494"
                 "8c0573616c74799486948c0d70726f6d70745f656d62656473944320000102030405060708090a0b0c0d0e0f101112131415"
                 "161718191a1b1c1d1e1f948694749487942e"},
      {.what = "an adapter without a path",
       .lora_name = "l",
       .cbor = "8342aabb840119012c211a000111708183646c6f7261616c60",
       .pickle = "8005952c000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c046c6f7261948c016c948c00948794"
                 "859487942e"},
      {.what = "a salt",
       .salt = "s",
       .cbor = "8342aabb840119012c211a0001117081826a63616368655f73616c746173",
       .pickle = "8005952f000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c0a63616368655f73616c74948c0173"
                 "948694859487942e"},
      {.what = "items",
       .items = {{"a", PlaceholderRange(16, 1)}, {"b", PlaceholderRange(17, 1)}},
       .cbor = "8342aabb840119012c211a000111708283626d6d61610083626d6d616201",
       .pickle = "80059533000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c026d6d948c0161944b00879468028c"
                 "0162944b018794869487942e"},
      {.what = "an adapter and a salt",
       .lora_name = "n",
       .salt = "s",
       .lora_path = "n",
       .cbor = "8342aabb840119012c211a000111708283646c6f7261616e616e826a63616368655f73616c746173",
       .pickle = "8005953e000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c046c6f7261948c016e94680387948c"
                 "0a63616368655f73616c74948c0173948694869487942e"},
      {.what = "embeddings",
       .has_embeds = true,
       .cbor = "8342aabb840119012c211a0001117081826d70726f6d70745f656d626564735820000102030405060708090a0b0c0d0e0f10"
               "1112131415161718191a1b1c1d1e1f",
       .pickle = "80059551000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c0d70726f6d70745f656d6265647394"
                 "4320000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f948694859487942e"},
      {.what = "all keys without tags",
       .lora_name = "ada",
       .items = {{"img", PlaceholderRange(10, 8)}, {"pic", PlaceholderRange(19, 1)}},
       .salt = "salty",
       .has_embeds = true,
       .tagged = false,
       .cbor = "8342aabb840119012c211a0001117085636164618263696d67258263706963036573616c7479582000010203040506070809"
               "0a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
       .pickle = "80059565000000000000004302aabb94284b014d2c014afeffffff4a701101007494288c03616461948c03696d67944afaff"
                 "ffff86948c03706963944b0386948c0573616c7479944320000102030405060708090a0b0c0d0e0f10111213141516171819"
                 "1a1b1c1d1e1f94749487942e"},
      {.what = "a salt without a tag",
       .salt = "s",
       .tagged = false,
       .cbor = "8342aabb840119012c211a00011170816173",
       .pickle = "80059520000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c017394859487942e"},
      {.what = "an adapter without a tag whose path is not a key",
       .lora_name = "l",
       .lora_path = "/a",
       .tagged = false,
       .cbor = "8342aabb840119012c211a0001117081616c",
       .pickle = "80059520000000000000004302aabb94284b014d2c014afeffffff4a7011010074948c016c94859487942e"},
  };
}

TEST(HashKeys, AreEncodedAsInPython) {
  HashBytes bytes;
  for (const Keys& keys : all_keys()) {
    encode_cbor(kParent, keys.input(), bytes);
    EXPECT_EQ(to_hex(bytes.view()), keys.cbor) << keys.what;
    encode_pickle(kParent, keys.input(), bytes);
    EXPECT_EQ(to_hex(bytes.view()), keys.pickle) << keys.what;
  }
}

// An item that ends before the block is not one of its keys.
TEST(HashKeys, OmitItemsBeforeTheBlock) {
  Keys keys{.what = "items", .items = {{"old", PlaceholderRange(12, 4)}, {"a", PlaceholderRange(16, 1)}, {"b", PlaceholderRange(17, 1)}}};
  HashBytes with, without;
  for (const bool tagged : {false, true}) {
    keys.tagged = tagged;
    const HashInput all = keys.input();
    HashInput fewer = all;
    fewer.multimodal = fewer.multimodal.subspan(1);
    encode_cbor(kParent, all, with);
    encode_cbor(kParent, fewer, without);
    EXPECT_EQ(to_hex(with.view()), to_hex(without.view()));
    encode_pickle(kParent, all, with);
    encode_pickle(kParent, fewer, without);
    EXPECT_EQ(to_hex(with.view()), to_hex(without.view()));
  }
}

// One byte can number the first 256 objects that pickle memoizes.
TEST(HashKeys, ReferToAOneCharacterStringUpToTheLastOneByteIndex) {
  Keys keys{.what = "items", .lora_name = "l", .tagged = false};
  for (int i = 0; i < 126; ++i) keys.items.push_back({"i" + std::to_string(1000 + i).substr(1), PlaceholderRange(16, 4)});
  for (int i = 0; i < 2; ++i) keys.items.push_back({"x", PlaceholderRange(16, 4)});
  HashBytes bytes;
  encode_pickle(kParent, keys.input(), bytes);
  EXPECT_EQ(bytes.view().size(), 1444U);
  EXPECT_EQ(to_hex(Sha256::of(std::as_bytes(bytes.view()))), "2c1ac207e2eeafa49495e2dd7681ea9d409b2cf53c5ca3b712d12081070eee01");
}

}  // namespace
}  // namespace quire::test
