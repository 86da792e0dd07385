// SentencePiece's BPE: creates one symbol per character and merges symbols by the score of the merged token, or by rank if the file lists
// merges. A symbol that is no token becomes the tokens of its bytes. Called by the tokenizer for each text between added tokens.
// Thread-safe. The cost is O(n log n) for any text.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "text/merge.h"
#include "text/merge_table.h"
#include "text/text_encoder.h"
#include "text/utf8.h"

namespace quire {
namespace {

// Returns the rank of each token by descending score. Equal scores have equal ranks.
std::vector<std::uint32_t> ranks_of_scores(const std::vector<float>& scores) {
  std::vector<float> distinct = scores;
  std::ranges::sort(distinct, std::greater());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<std::uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores)
    ranks.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(distinct, score, std::greater()) - distinct.begin()));
  return ranks;
}

class SentencePieceEncoder final : public TextEncoder {
 public:
  SentencePieceEncoder(const TokenizerSpec& spec, const Vocabulary& vocabulary, MergeTable merges)
      : vocabulary_(vocabulary),
        merges_(std::move(merges)),
        ranks_(merges_.size() > 0 ? std::vector<std::uint32_t>{} : ranks_of_scores(spec.scores)),
        unk_(spec.unk) {}

  Result<void> encode(std::string_view text, std::size_t /*max_size*/, const CancellationPoint* cancellation,
                      std::vector<TokenId>& out) const override {
    const std::string spaced = with_plain_spaces(text);
    Merger merger;
    append_characters(spaced, merger);
    constexpr std::uint64_t kLooksPerCheckpoint = 16 << 10;
    std::uint64_t num_looks = 0;
    const auto look = [&] {
      if (++num_looks % kLooksPerCheckpoint == 0) pass(cancellation);
    };
    if (merges_.size() > 0) {
      merger.run([&](std::uint32_t, const Symbol& left, const Symbol& right) {
        look();
        return merges_.find(left.id, right.id);
      });
    } else {
      merger.run([&](std::uint32_t begin, const Symbol& left, const Symbol& right) {
        look();
        return merge_by_score(std::string_view(spaced).substr(begin, left.length + right.length));
      });
    }
    emit(spaced, merger, out);
    return {};
  }

 private:
  void append_characters(std::string_view text, Merger& merger) const {
    merger.clear(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_char_length(text, at);
      merger.append(vocabulary_.find_piece(text.substr(at, length)).value_or(-1), static_cast<std::uint32_t>(length));
      at += length;
    }
  }

  [[nodiscard]] std::optional<Merge> merge_by_score(std::string_view merged) const {
    const auto piece = vocabulary_.find_piece(merged);
    if (!piece) return std::nullopt;
    return Merge{ranks_[static_cast<std::size_t>(*piece)], *piece};
  }

  void emit(std::string_view text, const Merger& merger, std::vector<TokenId>& out) const {
    bool after_unknown = false;
    merger.for_each([&](std::uint32_t begin, const Symbol& symbol) {
      const bool known = symbol.id >= 0 || emit_bytes(text.substr(begin, symbol.length), out);
      if (symbol.id >= 0) out.push_back(symbol.id);
      // A run of unknown characters becomes one unknown token.
      if (!known && unk_ && !after_unknown) out.push_back(*unk_);
      after_unknown = !known;
    });
  }

  // Appends the tokens of all bytes of the character. If a byte has no token, appends nothing and returns false.
  bool emit_bytes(std::string_view character, std::vector<TokenId>& out) const {
    const std::size_t before = out.size();
    for (const char byte : character) {
      const auto token = vocabulary_.byte_token(static_cast<unsigned char>(byte));
      if (!token) {
        out.resize(before);
        return false;
      }
      out.push_back(*token);
    }
    return true;
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  std::vector<std::uint32_t> ranks_;  // one per token; empty if the file lists merges
  std::optional<TokenId> unk_;
};

}  // namespace

Result<std::unique_ptr<const TextEncoder>> make_sentencepiece_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  auto merges = MergeTable::create(spec, vocabulary);
  if (!merges) return std::unexpected(merges.error());
  if (merges->size() == 0 && spec.scores.empty())
    return fail(ErrorCode::corrupt, "tokenizer scores", "the vocabulary has neither scores nor merges", "convert the model again");
  return std::make_unique<const SentencePieceEncoder>(spec, vocabulary, std::move(*merges));
}

}  // namespace quire
