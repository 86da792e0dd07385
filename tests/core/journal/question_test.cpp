// Tests the digest of a seam's question: FNV-1a of all fields. Numbers have eight bytes, and lists begin with their length.
#include "core/journal/question.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::test {
namespace {

class NaiveQuestion {
 public:
  NaiveQuestion& number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  NaiveQuestion& text(const std::string& text) {
    number(text.size());
    bytes_ += text;
    return *this;
  }
  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t digest = 0xcbf29ce484222325U;
    for (const char byte : bytes_) digest = (digest ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3U;
    return digest;
  }

 private:
  std::string bytes_;
};

TEST(SeamQuestion, DigestIsFnvOfAllFields) {
  const std::vector<TokenId> tokens = {7, 8, 1 << 20};
  const std::vector<RequestId> ids = {{5}, {6}};
  EXPECT_EQ(SeamQuestion().digest(), NaiveQuestion().digest());
  EXPECT_EQ(SeamQuestion().add(std::uint64_t{0x123456789ABCDEF0}).digest(), NaiveQuestion().number(0x123456789ABCDEF0).digest());
  EXPECT_EQ(SeamQuestion().add(std::string_view("a\xFF")).digest(), NaiveQuestion().text("a\xFF").digest());
  EXPECT_EQ(SeamQuestion().add(std::span<const TokenId>(tokens)).digest(),
            NaiveQuestion().number(3).number(7).number(8).number(1 << 20).digest());
  EXPECT_EQ(SeamQuestion(false).add(std::span<const TokenId>(tokens)).digest(), NaiveQuestion().number(3).digest());
  EXPECT_EQ(SeamQuestion().add(std::span<const RequestId>(ids)).digest(), NaiveQuestion().number(2).number(5).number(6).digest());
  RequestView view;
  view.id = {9};
  view.tokens = tokens;
  view.num_computed_tokens = 2;
  view.status = RequestStatus::running;
  view.num_preemptions = 3;
  EXPECT_EQ(SeamQuestion().add(view).digest(),
            NaiveQuestion().number(9).number(3).number(2).number(static_cast<std::uint64_t>(RequestStatus::running)).number(3).digest());
}

TEST(SeamQuestion, DigestOfAHashCoversTheParentAndAllKeys) {
  const std::vector<TokenId> tokens = {7, 8};
  const std::vector<MultimodalFeature> items = {{"i", PlaceholderRange(3, 2)}, {"j", PlaceholderRange(6, 1)}};
  BlockHash parent;
  for (std::size_t i = 0; i < parent.bytes.size(); ++i) parent.bytes[i] = static_cast<std::uint8_t>(i + 1);
  HashInput input{.tokens = tokens,
                  .start = 16,
                  .lora_name = "l",
                  .multimodal = items,
                  .cache_salt = "s",
                  .embeds_digest = parent.bytes,
                  .lora_path = "/p"};
  for (const bool with_tokens : {true, false}) {
    for (const bool has_parent : {true, false}) {
      NaiveQuestion naive;
      for (std::size_t i = 0; has_parent && i < parent.bytes.size(); ++i) naive.number(i + 1);
      naive.number(2);
      if (with_tokens) naive.number(7).number(8);
      naive.number(16).text("l").text("/p").text("s").text("i").number(3).text("j").number(6);
      for (std::size_t i = 0; with_tokens && i < parent.bytes.size(); ++i) naive.number(i + 1);
      EXPECT_EQ(SeamQuestion(with_tokens).add(has_parent ? &parent : nullptr, input).digest(), naive.digest()) << with_tokens << has_parent;
    }
  }
}

}  // namespace
}  // namespace quire::test
