#pragma once
// An image, sound or other item behind placeholder tokens of a prompt. The rules are those of vLLM V1's PlaceholderRange (v0.19.0).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace quire {

// Tokens [offset, offset + length) of the request stand for one item.
class PlaceholderRange {
 public:
  PlaceholderRange() = default;
  // Every position takes an embedding.
  PlaceholderRange(std::uint32_t offset, std::uint32_t length) : offset_(offset), length_(length) {}
  // Position i takes an embedding where is_embed[i] is not 0; the mask has one entry per position.
  PlaceholderRange(std::uint32_t offset, std::span<const std::uint8_t> is_embed)
      : offset_(offset), length_(static_cast<std::uint32_t>(is_embed.size())) {
    embeds_cumsum_.reserve(is_embed.size());
    for (std::uint8_t embed : is_embed)
      embeds_cumsum_.push_back((embed == 0 ? 0 : 1) + (embeds_cumsum_.empty() ? 0 : embeds_cumsum_.back()));
  }

  [[nodiscard]] std::uint32_t offset() const { return offset_; }
  [[nodiscard]] std::uint32_t length() const { return length_; }
  [[nodiscard]] std::uint32_t end() const { return offset_ + length_; }
  // The same item further on (the inputs of a session count from their own start).
  [[nodiscard]] PlaceholderRange moved_by(std::uint32_t tokens) const {
    PlaceholderRange moved = *this;
    moved.offset_ += tokens;
    return moved;
  }

  // Embeddings of the whole item: what encoder budgets count.
  [[nodiscard]] std::uint32_t num_embeds() const { return embeds_cumsum_.empty() ? length_ : embeds_cumsum_.back(); }

  // The embeddings [first, second) that positions [start, end) of this range take. As in vLLM, an end of 0 or less counts from the back
  // (the scheduler of a drafting model asks so for an item it has not reached). Requires start < length and -length < end <= length.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> embeds_in_range(std::int64_t start, std::int64_t end) const {
    if (embeds_cumsum_.empty()) return {start, end};
    return {start > 0 ? cumsum_at(start - 1) : 0, cumsum_at(end - 1)};
  }

  friend bool operator==(const PlaceholderRange&, const PlaceholderRange&) = default;

 private:
  [[nodiscard]] std::int64_t cumsum_at(std::int64_t index) const {
    const auto size = static_cast<std::int64_t>(embeds_cumsum_.size());
    return embeds_cumsum_.at(static_cast<std::size_t>(index < 0 ? index + size : index));
  }

  std::uint32_t offset_ = 0;
  std::uint32_t length_ = 0;
  // Sums, not flags: the encoder budget asks how many embeddings a part of the item takes in every step in which that part is scheduled.
  std::vector<std::uint32_t> embeds_cumsum_;  // embeddings in positions [0, i]; empty: every position has one
};

// What an encoder reads: [2 * ModelInfo::encoder.num_positions][num_features].
struct EncoderInput {
  std::vector<float> features;
};

struct MultimodalFeature {
  std::string identifier;  // names the content: equal identifiers share encoder outputs and blocks
  PlaceholderRange position;
};

}  // namespace quire
