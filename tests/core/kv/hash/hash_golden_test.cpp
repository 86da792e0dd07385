// Compares with tests/golden/block_hashes.txt, which contains the results of vLLM's functions for equal content
// (tools/record/block_hashes.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "base/xxhash.h"
#include "core/kv/hash/hash_function.h"
#include "support/split.h"

namespace quire::test {
namespace {

// Parses "hex" or "hex*count".
std::string bytes_from(const std::string& text) {
  const auto star = text.find('*');
  const std::string hex = text.substr(0, star);
  std::string unit;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) unit += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  std::string bytes;
  for (int i = star == std::string::npos ? 1 : std::stoi(text.substr(star + 1)); i > 0; --i) bytes += unit;
  return bytes;
}

std::vector<TokenId> tokens_from(const std::string& text) {
  std::vector<TokenId> tokens;
  if (const auto parts = split(text, ':'); parts.size() == 3) {
    Random random(std::stoull(parts[0]));
    const std::uint64_t bound = std::stoull(parts[2]);
    for (int i = std::stoi(parts[1]); i > 0; --i) {
      const std::uint64_t value = random.next();
      tokens.push_back(static_cast<TokenId>(bound == 0 ? value & 0xFFFFFFFF : value % bound));
    }
    return tokens;
  }
  if (const auto parts = split(text, '*'); parts.size() == 2) return std::vector<TokenId>(std::stoul(parts[1]), std::stoi(parts[0]));
  for (const std::string& token : split(text, ',')) tokens.push_back(std::stoi(token));
  return tokens;
}

std::vector<MultimodalFeature> items_from(const std::string& text) {
  std::vector<MultimodalFeature> items;
  for (const std::string& item : split(text, ',')) {
    const auto at = item.find('@');
    const auto plus = item.find('+', at);
    const auto number = [&](std::size_t position) { return static_cast<std::uint32_t>(std::stoul(item.substr(position + 1))); };
    items.push_back({bytes_from(item.substr(0, at)), PlaceholderRange(number(at), number(plus))});
  }
  return items;
}

struct HashCase {
  std::map<std::string, std::string> fields;

  explicit HashCase(const std::string& line) {
    for (const std::string& field : split(line, ' ')) {
      const auto equals = field.find('=');
      fields[field.substr(0, equals)] = field.substr(equals + 1);
    }
  }
  std::string operator[](const std::string& key) const { return fields.at(key); }
};

std::vector<HashCase> hash_cases() {
  std::ifstream file("tests/golden/block_hashes.txt");
  std::vector<HashCase> cases;
  for (std::string line; std::getline(file, line);) cases.emplace_back(line);
  return cases;
}

std::string hashes_of(const HashCase& given) {
  const auto algorithm = parse_hash_algorithm(given["algorithm"]);
  const std::string root = bytes_from(given["root"]);
  const auto function = make_hash_function(
      {.algorithm = *algorithm, .seed = bytes_from(given["seed"]), .root = {root.begin(), root.end()}, .extra_keys = nullptr});
  if (!function) return "refused";
  const auto tokens = tokens_from(given["tokens"]);
  const auto items = items_from(given["items"]);
  const std::string lora = bytes_from(given["lora"]);
  const std::string salt = bytes_from(given["salt"]);
  const auto colon = given["embeds"].find(':');
  const std::string embeds = bytes_from(given["embeds"].substr(colon + 1));
  std::vector<BlockHash> hashes;
  for (const std::string& step : split(given["steps"], ',')) {
    const RequestContent content{.tokens = std::span(tokens).first(std::stoul(step)),
                                 .lora_name = lora,
                                 .multimodal = items,
                                 .cache_salt = salt,
                                 .prompt_embeds = {std::as_bytes(std::span(embeds)), std::stoul(given["embeds"].substr(0, colon))}};
    hash_full_blocks(**function, content, static_cast<std::uint32_t>(std::stoul(given["block"])), hashes);
  }
  std::string text;
  for (const BlockHash& hash : hashes) text += (text.empty() ? "" : ",") + to_hex(std::span(hash.bytes).first(hash_size(*algorithm)));
  return text;
}

TEST(Trap36, HashesEqualThoseOfVllm) {
  const auto cases = hash_cases();
  ASSERT_GE(cases.size(), 380U);
  std::size_t num_compared = 0;
  for (const HashCase& given : cases) {
    if (given["algorithm"].starts_with("xxhash") && !xxhash_available()) {
      EXPECT_EQ(hashes_of(given), "refused");
      continue;
    }
    ++num_compared;
    EXPECT_EQ(hashes_of(given), given["hashes"])
        << given["algorithm"] << " of " << given["tokens"].substr(0, 100) << ", items " << given["items"].substr(0, 100);
  }
  EXPECT_GE(num_compared, 190U);
}

}  // namespace
}  // namespace quire::test
