// Compares the frames of pickled block hashes (PEP 3154) with a writer that collects each frame separately.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_encode.h"

namespace quire {
namespace {

constexpr std::size_t kFrameTarget = 64 * 1024;

class NaivePickle {
 public:
  // Begins an object.
  NaivePickle& object() {
    if (frame_.size() >= kFrameTarget) end_frame();
    return *this;
  }
  NaivePickle& put(std::string_view bytes) {
    frame_ += bytes;
    return *this;
  }
  NaivePickle& number(std::size_t num_bytes, std::uint64_t value) { return put(little(num_bytes, value)); }
  NaivePickle& integer(TokenId token) {
    const auto bits = static_cast<std::uint32_t>(token);
    if (bits <= 0xFF) return object().put("K").number(1, bits);
    return bits <= 0xFFFF ? object().put("M").number(2, bits) : object().put("J").number(4, bits);
  }
  NaivePickle& text(const std::string& value) {
    object();
    if (value.size() <= 0xFF) {
      put("\x8C").number(1, value.size()).put(value);
    } else if (value.size() < kFrameTarget) {
      put("X").number(4, value.size()).put(value);
    } else {
      end_frame();
      out_ += "X" + little(4, value.size()) + value;
    }
    return put("\x94");
  }
  std::string finish() {
    put(".");
    end_frame();
    return out_;
  }

 private:
  static std::string little(std::size_t num_bytes, std::uint64_t value) {
    std::string bytes;
    for (std::size_t i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  }
  void end_frame() {
    if (frame_.size() >= 4) out_ += "\x95" + little(8, frame_.size());
    out_ += frame_;
    frame_.clear();
  }

  std::string out_ = "\x80\x05";
  std::string frame_;
};

std::string naive_pickle(const std::string& parent, const std::vector<TokenId>& tokens, const std::string& lora) {
  NaivePickle pickle;
  pickle.object().object().put("C").number(1, parent.size()).put(parent).put("\x94");
  pickle.object().put(tokens.size() > 3 ? "(" : "");
  for (const TokenId token : tokens) pickle.integer(token);
  const std::string ends[] = {")", "\x85\x94", "\x86\x94", "\x87\x94"};
  pickle.put(tokens.size() > 3 ? "t\x94" : ends[tokens.size()]).object();
  if (lora.empty())
    pickle.put("N");
  else
    pickle.text(lora).put("\x85\x94");
  return pickle.put("\x87\x94").finish();
}

std::string written(const HashBytes& bytes) {
  return {bytes.view().begin(), bytes.view().end()};
}

void expect_equal(const std::vector<TokenId>& tokens, const std::string& lora) {
  const std::string parent = "parent";
  const HashInput input{.tokens = tokens, .start = 16, .lora_name = lora, .multimodal = {}, .cache_salt = {}, .embeds_digest = {}};
  HashBytes bytes;
  encode_pickle(bytes_of(parent), input, bytes);
  EXPECT_TRUE(written(bytes) == naive_pickle(parent, tokens, lora))
      << tokens.size() << " tokens, an adapter name of " << lora.size() << " bytes";
}

// Writes a tuple up to its third part: the parent hash and the tokens.
NaivePickle naive_beginning(const std::string& parent, const std::vector<TokenId>& tokens) {
  NaivePickle pickle;
  pickle.object().object().put("C").number(1, parent.size()).put(parent).put("\x94");
  pickle.object().put("(");
  for (const TokenId token : tokens) pickle.integer(token);
  pickle.put("t\x94");
  return pickle;
}

// The lengths are near those at which a frame is full, with numbers of 2, 3 and 5 bytes and of all sizes.
TEST(EncodePickle, FramesEndAsInThePickler) {
  for (const TokenId token : {0xFF, 0x100, 0x10000}) {
    const std::size_t size = token < 0x100 ? 2 : token < 0x10000 ? 3 : 5;
    for (const std::size_t num_frames : {1U, 2U}) {
      const std::size_t full = num_frames * kFrameTarget / size;
      for (std::size_t n = full - 8; n < full + 3; ++n) expect_equal(std::vector<TokenId>(n, token), n % 2 == 0 ? "" : "adapter");
    }
  }
  for (std::size_t n = 0; n < 6; ++n) expect_equal(std::vector<TokenId>(n, 7), "");
  Random random(3);
  for (int round = 0; round < 12; ++round) {
    std::vector<TokenId> tokens(random.between(20'000, 60'000));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random.next() >> random.between(33, 60));
    expect_equal(tokens, "");
  }
}

// A pair of an item begins a new frame when the previous frame is full; so does the list of items.
TEST(EncodePickle, FramesEndBetweenItems) {
  const std::string parent = "parent";
  const std::vector<TokenId> tokens(4, 7);
  // At these lengths the texts of the first item, the number after them, or the second pair fills the frame.
  for (std::size_t length = kFrameTarget - 80; length < kFrameTarget; ++length) {
    const std::string first(length, 'i'), second(7, 'j');
    const std::vector<MultimodalFeature> items{{first, PlaceholderRange(16, 2)}, {second, PlaceholderRange(18, 1)}};
    const HashInput input{.tokens = tokens, .start = 16, .lora_name = {}, .multimodal = items, .cache_salt = {}, .embeds_digest = {}};
    HashBytes bytes;
    encode_pickle(bytes_of(parent), input, bytes);
    NaivePickle pickle = naive_beginning(parent, tokens);
    pickle.object();
    pickle.object().text(first).integer(0).put("\x86\x94");
    pickle.object().text(second).integer(2).put("\x86\x94");
    ASSERT_TRUE(written(bytes) == pickle.put("\x86\x94").put("\x87\x94").finish()) << length;
  }
}

// CPython has one object for each character below U+0100. Bytes that are not a character cannot occur in a Python string and must not
// match. Memory after the end of a text must not match either.
TEST(EncodePickle, RefersToTextsOfOneLatin1Character) {
  std::vector<std::pair<std::string, bool>> texts{
      {"ab", false}, {"\xC1\xBF", false}, {"\xC2\x80", true}, {"\xC3\xBF", true}, {"\xC4\x80", false}};
  for (int byte = 0; byte < 0x100; ++byte) texts.emplace_back(std::string(1, static_cast<char>(byte)), byte < 0x80);
  const std::string parent = "parent";
  const std::vector<TokenId> tokens(4, 7);
  for (const auto& [text, is_character] : texts) {
    for (const char* const following : {"", "\xFF", "a"}) {
      const std::string in_memory = text + following;
      const std::string_view view = std::string_view(in_memory).substr(0, text.size());
      const HashInput input{.tokens = tokens, .start = 16, .lora_name = view, .multimodal = {}, .cache_salt = view, .embeds_digest = {}};
      HashBytes bytes;
      encode_pickle(bytes_of(parent), input, bytes);
      NaivePickle pickle = naive_beginning(parent, tokens);
      pickle.object().text(text);
      is_character ? pickle.object().put("h").number(1, 2) : pickle.text(text);
      ASSERT_EQ(written(bytes), pickle.put("\x86\x94").put("\x87\x94").finish());
    }
  }
}

TEST(EncodePickle, WritesLongTextsBetweenFrames) {
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{0xFF}, std::size_t{0x100}, kFrameTarget - 1, kFrameTarget, kFrameTarget + 1}) {
    const std::string name(length, 'n');
    for (const std::size_t num_tokens : {4U, 21'841U}) expect_equal(std::vector<TokenId>(num_tokens, 0x100), name);
    HashBytes bytes;
    encode_pickle(name, bytes);
    EXPECT_TRUE(written(bytes) == NaivePickle().text(name).finish()) << length;
  }
}

}  // namespace
}  // namespace quire
