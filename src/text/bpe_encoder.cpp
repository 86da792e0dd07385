// Byte-level BPE: splits the text with the pre-tokenizer, creates one symbol per byte, and merges symbols by rank.
#include <array>
#include <string>
#include <utility>

#include "text/merge.h"
#include "text/merge_table.h"
#include "text/piece_cache.h"
#include "text/pre_tokenizer.h"
#include "text/text_encoder.h"

namespace quire {
namespace {

struct BpeOptions {
  bool ignore_merges = false;
  bool ids_are_ranks = false;
  std::optional<TokenId> unk;
};

class BpeEncoder final : public TextEncoder {
 public:
  BpeEncoder(const Vocabulary& vocabulary, MergeTable merges, PreTokenizer pre_tokenizer, BpeOptions options)
      : vocabulary_(vocabulary), merges_(std::move(merges)), pre_tokenizer_(std::move(pre_tokenizer)), options_(options) {
    for (unsigned byte = 0; byte < byte_ids_.size(); ++byte) {
      const char text = static_cast<char>(byte);
      byte_ids_[byte] = vocabulary.find_piece({&text, 1}).value_or(options.unk.value_or(-1));
    }
  }

  Result<void> encode(std::string_view text, std::size_t max_size, const CancellationPoint* cancellation,
                      std::vector<TokenId>& out) const override {
    constexpr std::size_t kBytesPerCheckpoint = 16 << 10;
    Merger merger;
    std::size_t unchecked = 0;
    return pre_tokenizer_.for_each_piece(text, [&](std::string_view piece) {
      unchecked += piece.size();
      if (unchecked >= kBytesPerCheckpoint) {
        pass(cancellation);
        unchecked = 0;
      }
      encode_piece(piece, merger, out);
      return out.size() <= max_size;
    });
  }

 private:
  void encode_piece(std::string_view piece, Merger& merger, std::vector<TokenId>& out) const {
    if (cache_.find(piece, out)) return;
    const std::size_t first = out.size();
    merge_piece(piece, merger, out);
    cache_.insert(piece, std::span(out).subspan(first));
  }

  void merge_piece(std::string_view piece, Merger& merger, std::vector<TokenId>& out) const {
    if (options_.ignore_merges) {
      if (const auto whole = vocabulary_.find_piece(piece)) return out.push_back(*whole);
    }
    merger.clear(piece.size());
    for (const char byte : piece) merger.append(byte_ids_[static_cast<unsigned char>(byte)], 1);
    if (options_.ids_are_ranks) {
      merger.run([&](std::uint32_t begin, const Symbol& left, const Symbol& right) -> std::optional<Merge> {
        const auto merged = vocabulary_.find_piece(piece.substr(begin, left.length + right.length));
        return merged ? std::optional(Merge{static_cast<std::uint32_t>(*merged), *merged}) : std::nullopt;
      });
    } else {
      merger.run([this](std::uint32_t, const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
    }
    merger.for_each([&out](std::uint32_t, const Symbol& symbol) {
      if (symbol.id >= 0) out.push_back(symbol.id);
    });
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  PreTokenizer pre_tokenizer_;
  BpeOptions options_;
  std::array<TokenId, 256> byte_ids_{};  // -1: the byte is not in the vocabulary and produces no token
  mutable PieceCache cache_;
};

}  // namespace

Result<std::unique_ptr<const TextEncoder>> make_bpe_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  std::vector<std::string> patterns = spec.split_patterns;
  if (patterns.empty()) {
    auto known = pre_tokenizer_by_name(spec.pre);
    if (!known) return std::unexpected(known.error());
    patterns = std::move(*known);
  }
  auto pre_tokenizer = PreTokenizer::create(patterns);
  if (!pre_tokenizer) return std::unexpected(pre_tokenizer.error());
  auto merges = MergeTable::create(spec, vocabulary);
  if (!merges) return std::unexpected(merges.error());
  return std::make_unique<const BpeEncoder>(vocabulary, std::move(*merges), std::move(*pre_tokenizer),
                                            BpeOptions{spec.ignore_merges, spec.ids_are_ranks, spec.unk});
}

}  // namespace quire
