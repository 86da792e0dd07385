#pragma once
// Multimodal items of a prompt (images, audio), which placeholder tokens represent. The rules are as in vLLM V1's PlaceholderRange
// (v0.19.0).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace quire {

// The range [offset, offset + length) of a request's tokens that represents one item.
class PlaceholderRange {
 public:
  PlaceholderRange() = default;
  // Creates a range in which every position has an embedding.
  PlaceholderRange(std::uint32_t offset, std::uint32_t length) : offset_(offset), length_(length) {}
  // Creates a range in which position i has an embedding if is_embed[i] is not 0. The mask has one entry per position.
  PlaceholderRange(std::uint32_t offset, std::span<const std::uint8_t> is_embed)
      : offset_(offset), length_(static_cast<std::uint32_t>(is_embed.size())) {
    embeds_cumsum_.reserve(is_embed.size());
    for (std::uint8_t embed : is_embed)
      embeds_cumsum_.push_back((embed == 0 ? 0 : 1) + (embeds_cumsum_.empty() ? 0 : embeds_cumsum_.back()));
  }

  [[nodiscard]] std::uint32_t offset() const { return offset_; }
  [[nodiscard]] std::uint32_t length() const { return length_; }
  [[nodiscard]] std::uint32_t end() const { return offset_ + length_; }
  // Returns the range of the same item, moved by `tokens` positions. (The inputs of a session count positions from their own start.)
  [[nodiscard]] PlaceholderRange moved_by(std::uint32_t tokens) const {
    PlaceholderRange moved = *this;
    moved.offset_ += tokens;
    return moved;
  }

  // Returns the number of embeddings of the whole item. Encoder budgets count this number.
  [[nodiscard]] std::uint32_t num_embeds() const { return embeds_cumsum_.empty() ? length_ : embeds_cumsum_.back(); }

  // Returns the range [first, second) of the item's embeddings at positions [start, end) of this range. As in vLLM, an end of 0 or less
  // counts from the back: the scheduler of a draft model passes such an end for an item that it has not reached. Requires start < length
  // and -length < end <= length.
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
  // Sums instead of flags, because the encoder budget needs the number of embeddings of a part of the item in every step.
  std::vector<std::uint32_t> embeds_cumsum_;  // number of embeddings at positions [0, i]; empty: every position has one
};

// Input of an encoder, with the shape [2 * ModelInfo::encoder.num_positions][num_features].
struct EncoderInput {
  std::vector<float> features;
};

// One multimodal item of a request.
struct MultimodalFeature {
  std::string identifier;  // identifies the content: equal identifiers share encoder outputs and blocks
  PlaceholderRange position;
};

}  // namespace quire
