// The queue of images for the encoder, and the embeddings that are kept. take(), the queue functions and forget_all() are called on any
// thread and hold the mutex briefly. The worker calls the other functions on the thread that leads a step, or on the engine thread between
// two steps. The mutex is not held while an image is encoded.
#include "runtime/worker/image_encoder.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point begin) {
  return std::chrono::duration<double>(Time::now() - begin).count();
}

// Returns whether `picture` has the size (or embeddings) of `known`. An image that came with its embeddings has no tiles.
bool is_same(const EncodedImage& known, const PromptImage& picture) {
  if (picture.embeds != nullptr) return known.num_tiles == 0 && known.embeds == picture.embeds->values;
  const ImageTiles& tiles = *picture.tiles;
  return known.num_tiles == tiles.count && known.tile_width == tiles.side && known.tile_height == tiles.height();
}

std::shared_ptr<EncodedImage> image_of(const PromptImage& shown) {
  auto picture = std::make_shared<EncodedImage>();
  picture->identifier = shown.identifier;
  if (shown.embeds != nullptr) {
    picture->embeds = shown.embeds->values;
    picture->is_done = true;
    return picture;
  }
  picture->num_tiles = shown.tiles->count;
  picture->tile_width = shown.tiles->side;
  picture->tile_height = shown.tiles->height();
  picture->tiles = shown.tiles;
  return picture;
}

// Returns the grid of the image's embeddings. `side`: pixels across and down per embedding.
ImageGrid grid_of(const PromptImage& picture, std::uint32_t side) {
  if (picture.embeds != nullptr) return {picture.position.offset(), picture.embeds->rows, picture.embeds->columns};
  return {picture.position.offset(), picture.tiles->height() / side, picture.tiles->side / side};
}

}  // namespace

std::shared_ptr<const PromptImages> ImageEncoder::take(std::span<const PromptImage> pictures) {
  auto taken = std::make_shared<PromptImages>();
  taken->width = vision_.config().output_size;
  taken->is_bidirectional = vision_.config().attends_bidirectionally;
  const std::lock_guard lock(mutex_);
  for (const PromptImage& picture : pictures) {
    taken->features.push_back({picture.identifier, picture.position});
    if (const std::uint32_t side = vision_.config().grid_side(); side > 0) taken->grids.push_back(grid_of(picture, side));
    std::weak_ptr<EncodedImage>& known = images_by_identifier_[picture.identifier];
    std::shared_ptr<EncodedImage> shared = known.lock();
    // A client may reuse an identifier for an image of another size. The two images are not shared, so that other requests are not
    // affected.
    if (shared == nullptr || !is_same(*shared, picture)) {
      shared = image_of(picture);
      known = shared;
    }
    taken->pictures.push_back(std::move(shared));
  }
  if (images_by_identifier_.size() >= sweep_threshold_) {
    std::erase_if(images_by_identifier_, [](const auto& entry) { return entry.second.expired(); });
    sweep_threshold_ = std::max<std::size_t>(64, 2 * images_by_identifier_.size());
  }
  return taken;
}

void ImageEncoder::queue(std::span<const std::shared_ptr<EncodedImage>> pictures) {
  const std::lock_guard lock(mutex_);
  for (const auto& picture : pictures)
    if (!picture->is_done) queue_.emplace_back(picture);
}

bool ImageEncoder::has_queued() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(queue_, [](const auto& picture) { return !picture.expired(); });
}

// Sets job_ to the first queued image that is not encoded and that a request still holds. Returns whether there is such an image.
bool ImageEncoder::next_job() {
  const std::weak_ptr<EncodedImage> last = std::exchange(job_.picture, nullptr);
  const std::lock_guard lock(mutex_);
  for (; !queue_.empty(); queue_.pop_front()) {
    job_.picture = queue_.front().lock();
    if (job_.picture != nullptr && !job_.picture->is_done) break;
    job_.picture.reset();
  }
  if (job_.picture == nullptr || last.lock() != job_.picture) job_.run.reset();
  return job_.picture != nullptr;
}

VisionTile ImageEncoder::tile_of(const EncodedImage& picture) const {
  const std::size_t bytes = picture.tiles->tile_bytes();
  return {std::span(picture.tiles->rgb).subspan(picture.num_tiles_done * bytes, bytes), picture.tile_width, picture.tile_height};
}

// Runs one unit of encoding. If the current run has ended, begins a run for the next tile of the image.
void ImageEncoder::advance(Job& job) {
  EncodedImage& picture = *job.picture;
  if (job.run.is_done()) vision_.begin(job.run, tile_of(picture));
  vision_.advance(job.run);
  if (!job.run.is_done()) return;
  const auto embeds = job.run.embeds();
  picture.embeds.resize(picture.num_tiles * embeds.size());
  std::ranges::copy(embeds, picture.embeds.begin() + static_cast<std::ptrdiff_t>(picture.num_tiles_done * embeds.size()));
  if (++picture.num_tiles_done < picture.num_tiles) return;
  picture.tiles.reset();
  picture.is_done = true;
}

void ImageEncoder::encode_after_pass(double pass_s) {
  if (!next_job()) {
    time_debt_s_ = 0.0;
    return;
  }
  const double time_s = pass_s > 0.0 ? kShare * pass_s : kIdle_s;
  if (pass_s > 0.0 && time_debt_s_ >= time_s) {
    time_debt_s_ -= time_s;
    return;
  }
  const auto begin = Time::now();
  do {
    advance(job_);
    if (job_.picture->is_done && !next_job()) break;
  } while (seconds_since(begin) + time_debt_s_ < time_s);
  time_debt_s_ = pass_s > 0.0 ? std::max(0.0, seconds_since(begin) + time_debt_s_ - time_s) : 0.0;
}

void ImageEncoder::encode_now(EncodedImage& picture) {
  if (picture.is_done) return;
  // If the image is the current job, that job is finished. Otherwise a separate run encodes the image, and the current job is not changed.
  if (job_.picture.get() == &picture) {
    while (!picture.is_done) advance(job_);
    return;
  }
  urgent_.picture = std::shared_ptr<EncodedImage>(&picture, [](EncodedImage*) {});
  while (!picture.is_done) advance(urgent_);
  urgent_.picture.reset();
}

void ImageEncoder::keep(const std::shared_ptr<EncodedImage>& picture) {
  const std::lock_guard lock(mutex_);
  held_images_[picture->identifier] = picture;
}

void ImageEncoder::forget(std::span<const std::string_view> identifiers) {
  if (identifiers.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const std::string_view identifier : identifiers) held_images_.erase(std::string(identifier));
}

void ImageEncoder::forget_all() {
  const std::lock_guard lock(mutex_);
  held_images_.clear();
  images_by_identifier_.clear();
}

}  // namespace quire
