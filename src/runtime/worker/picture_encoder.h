#pragma once
// Which pictures are encoded, when, and which embeddings stay.
//
// A picture is encoded before its request is planned: behind each pass for a share of what that took, and all the time while nothing else
// is to be computed. So those who stream notice little of it. Where a plan needs one that is not there (it was found in the prefix cache,
// and is no more), the step computes it.
//
// Embeddings stay for as long as an open request shows the picture, or the core's encoder cache has it.
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
#include "runtime/worker/prompt_pictures.h"

namespace quire {

// take() and the queue: any thread. The rest: the thread that leads a step, or the engine's between two steps.
class PictureEncoder {
 public:
  static constexpr double kShare = 0.4;     // of a pass
  static constexpr double kIdle_s = 0.005;  // at once where no pass is to be run

  explicit PictureEncoder(VisionEncoder& vision) : vision_(vision) {}

  // Pictures that somebody shows already are the same.
  std::shared_ptr<const PromptPictures> take(std::span<const PromptPicture> pictures);
  // To be encoded while there is time; those whose requests have all ended are left out.
  void queue(std::span<const std::shared_ptr<EncodedPicture>> pictures);
  [[nodiscard]] bool has_queued() const;

  // Behind a pass that took so long (0: there was none).
  void follow_pass(double pass_s);
  void encode_now(EncodedPicture& picture);
  // What the core's encoder cache takes in and lets go of.
  void keep(const std::shared_ptr<EncodedPicture>& picture);
  void forget(std::span<const std::string_view> identifiers);

 private:
  // One that is under way, in units.
  struct Job {
    std::shared_ptr<EncodedPicture> picture;
    VisionRun run;
  };
  [[nodiscard]] bool next_job();
  void advance(Job& job);
  [[nodiscard]] VisionTile tile_of(const EncodedPicture& picture) const;

  VisionEncoder& vision_;
  Job job_, urgent_;
  double debt_s_ = 0.0;  // units that took longer than there was time for
  std::unordered_map<std::string, std::shared_ptr<EncodedPicture>> kept_;
  mutable std::mutex mutex_;  // of those below
  std::unordered_map<std::string, std::weak_ptr<EncodedPicture>> known_;
  std::size_t sweep_at_ = 64;
  std::deque<std::weak_ptr<EncodedPicture>> queue_;
};

}  // namespace quire
