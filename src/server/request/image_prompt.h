#pragma once
// The images of a rendered chat: the text that replaces each placeholder, the positions among the tokens, and the encoder's input.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "media/image_processor.h"
#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/image.h"
#include "server/request/completion_request.h"

namespace quire {

// Limits the memory of all requests' images from decoding until they are encoded. Thread-safe.
class ImageMemory {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20U;

  // Takes memory for one image; the result releases it. Returns null if there is not enough free memory, or if the tenant already has
  // images and would hold more than twice the free bytes.
  [[nodiscard]] std::shared_ptr<const void> take(std::uint64_t bytes, std::string_view tenant);
  // Takes memory for decoding one image, until the image's tiles are made. Returns null if there is not enough memory now; the caller must
  // then retry. A part of the memory is reserved for small images.
  static constexpr std::uint64_t kMaxScratchBytes = std::uint64_t{512} << 20U, kSmallScratchBytes = std::uint64_t{8} << 20U;
  [[nodiscard]] std::shared_ptr<const void> reserve_scratch(std::uint64_t bytes);

 private:
  // Number of counters. Tenants whose names have the same hash share one counter.
  static constexpr std::size_t kNumShares = 256;
  struct MemoryUsage {
    std::atomic<std::uint64_t> all{0}, scratch{0};
    std::array<std::atomic<std::uint64_t>, kNumShares> of_tenant{};
  };
  // Shared, because prepared images may outlive the server in the engine.
  std::shared_ptr<MemoryUsage> usage_ = std::make_shared<MemoryUsage>();
};

// Built from the first bytes of the image files. The images, the info and the processor must outlive this object. Thread-safe.
class ImagePrompt {
 public:
  // Reads the sizes of the images. `processor` is the processor for `info`, or null if there are no images. `max_pixels` is the limit for
  // all images together. Errors name the part of the message; `too_large` if `max_pixels` is exceeded.
  static Result<ImagePrompt> create(std::span<const ChatImage> pictures, const ImageInfo& info, const ImageProcessor* processor,
                                    std::uint64_t max_pixels);

  [[nodiscard]] bool any() const { return !images_.empty(); }
  // Returns the text in which each placeholder is replaced by its image's text. Errors: the numbers of placeholders and images differ.
  [[nodiscard]] Result<std::string> expand(std::string_view rendered) const;
  // Decodes and splits the images, and calls the cancellation point before each image. Requests with different values of
  // `ImageContext::salt` share no cached embeddings. Errors: a file is invalid; `overloaded`.
  struct ImageContext {
    ImageMemory& memory;
    std::string_view tenant;  // the tenant whose share of the memory is used
    std::string_view salt;
    const CancellationPoint* cancellation = nullptr;
  };
  [[nodiscard]] Result<std::vector<PromptImage>> make(std::span<const TokenId> tokens, const ImageContext& context) const;

 private:
  ImagePrompt(std::span<const ChatImage> pictures, const ImageInfo& info, const ImageProcessor* processor)
      : images_(pictures), info_(info), processor_(processor) {}
  [[nodiscard]] Result<PlaceholderRange> place(std::span<const TokenId> tokens, std::size_t number, std::size_t& at) const;

  std::span<const ChatImage> images_;
  const ImageInfo& info_;
  const ImageProcessor* processor_;
  std::vector<ImageShape> shapes_;     // one per image
  std::vector<std::uint64_t> pixels_;  // one per image; 0: the client sent embeddings
};

// Returns whether a template iterates over the parts of a message's content, so that the parts must stay separate.
[[nodiscard]] bool iterates_parts(std::string_view chat_template);
// Replaces each message's text by an array with one text part.
void wrap_in_parts(boost::json::array& messages);

}  // namespace quire
