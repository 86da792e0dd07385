#pragma once
// Decides when images are encoded, and how long their embeddings are kept.
//
// An image is encoded before its request is planned: after each pass for a share of the pass's time, and continuously while no pass runs.
// Requests that generate tokens are therefore delayed little. A plan can need an image without embeddings: the image's blocks were in the
// prefix cache when the request arrived, and were evicted afterwards. The step then encodes the image.
//
// Embeddings are kept as long as an open request has the image or the core's encoder cache holds the image.
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/base/plan.h"
#include "runtime/model/vision_encoder.h"
#include "runtime/worker/prompt_images.h"

namespace quire {

// Any thread may call take(), queue(), has_queued() and forget_all(). The other functions are called on the thread that leads a step, or on
// the engine thread between two steps.
class ImageEncoder {
 public:
  static constexpr double kShare = 0.4;     // share of the time of a pass
  static constexpr double kIdle_s = 0.005;  // time per call if there was no pass

  explicit ImageEncoder(VisionEncoder& vision) : vision_(vision) {}

  // Returns the images of a request. Images that another request already holds are shared.
  std::shared_ptr<const PromptImages> take(std::span<const PromptImage> pictures);
  // Queues images for encoding. An image is dropped when all of its requests have ended.
  void queue(std::span<const std::shared_ptr<EncodedImage>> pictures);
  [[nodiscard]] bool has_queued() const;

  // Encodes queued images after a pass of `pass_s` seconds; 0: there was no pass.
  void encode_after_pass(double pass_s);
  void encode_now(EncodedImage& picture);
  // Keeps an image that the core's encoder cache adds, and drops images that it evicts.
  void keep(const std::shared_ptr<EncodedImage>& picture);
  void forget(std::span<const std::string_view> identifiers);
  // Drops all kept images. Later requests do not share images with earlier ones. May be called on any thread.
  void forget_all();

 private:
  // An image that is being encoded, unit by unit.
  struct Job {
    std::shared_ptr<EncodedImage> picture;
    VisionRun run;
  };
  [[nodiscard]] bool next_job();
  void advance(Job& job);
  [[nodiscard]] VisionTile tile_of(const EncodedImage& picture) const;

  VisionEncoder& vision_;
  Job job_, urgent_;
  double time_debt_s_ = 0.0;  // time that units took beyond their share
  mutable std::mutex mutex_;  // guards the members below
  std::unordered_map<std::string, std::shared_ptr<EncodedImage>> held_images_;
  std::unordered_map<std::string, std::weak_ptr<EncodedImage>> images_by_identifier_;
  std::size_t sweep_threshold_ = 64;
  std::deque<std::weak_ptr<EncodedImage>> queue_;
};

}  // namespace quire
