// The pictures that wait for the encoder, and the embeddings that stay. take() and the queue are called from any thread, and take the mutex
// for moments; all else by the worker, on the thread that leads a step or the engine's between two. Nothing is encoded with the mutex held.
#include "runtime/worker/picture_encoder.h"

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

// One that was given encoded has no tiles.
bool is_same(const EncodedPicture& known, const PromptPicture& picture) {
  if (picture.embeds != nullptr) return known.num_tiles == 0 && known.embeds == picture.embeds->values;
  const PictureTiles& tiles = *picture.tiles;
  return known.num_tiles == tiles.count && known.tile_width == tiles.side && known.tile_height == tiles.height();
}

std::shared_ptr<EncodedPicture> picture_of(const PromptPicture& shown) {
  auto picture = std::make_shared<EncodedPicture>();
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

// Of its embeddings; `side`: pixels of one.
PlacedGrid grid_of(const PromptPicture& picture, std::uint32_t side) {
  if (picture.embeds != nullptr) return {picture.position.offset(), picture.embeds->rows, picture.embeds->columns};
  return {picture.position.offset(), picture.tiles->height() / side, picture.tiles->side / side};
}

}  // namespace

std::shared_ptr<const PromptPictures> PictureEncoder::take(std::span<const PromptPicture> pictures) {
  auto taken = std::make_shared<PromptPictures>();
  taken->width = vision_.config().output_size;
  taken->attend_whole = vision_.config().attends_whole;
  const std::lock_guard lock(mutex_);
  for (const PromptPicture& picture : pictures) {
    taken->features.push_back({picture.identifier, picture.position});
    if (const std::uint32_t side = vision_.config().grid_side(); side > 0) taken->grids.push_back(grid_of(picture, side));
    std::weak_ptr<EncodedPicture>& known = known_[picture.identifier];
    std::shared_ptr<EncodedPicture> shared = known.lock();
    // One of another size under its name is its client's business: it is nobody else's.
    if (shared == nullptr || !is_same(*shared, picture)) {
      shared = picture_of(picture);
      known = shared;
    }
    taken->pictures.push_back(std::move(shared));
  }
  if (known_.size() >= sweep_at_) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<std::size_t>(64, 2 * known_.size());
  }
  return taken;
}

void PictureEncoder::queue(std::span<const std::shared_ptr<EncodedPicture>> pictures) {
  const std::lock_guard lock(mutex_);
  for (const auto& picture : pictures)
    if (!picture->is_done) queue_.emplace_back(picture);
}

bool PictureEncoder::has_queued() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(queue_, [](const auto& picture) { return !picture.expired(); });
}

// One stays in the queue until it is done, and counts as long as somebody else shows it.
bool PictureEncoder::next_job() {
  const std::weak_ptr<EncodedPicture> last = std::exchange(job_.picture, nullptr);
  const std::lock_guard lock(mutex_);
  for (; !queue_.empty(); queue_.pop_front()) {
    job_.picture = queue_.front().lock();
    if (job_.picture != nullptr && !job_.picture->is_done) break;
    job_.picture.reset();
  }
  if (job_.picture == nullptr || last.lock() != job_.picture) job_.run.reset();
  return job_.picture != nullptr;
}

VisionTile PictureEncoder::tile_of(const EncodedPicture& picture) const {
  const std::size_t bytes = picture.tiles->tile_bytes();
  return {std::span(picture.tiles->rgb).subspan(picture.num_tiles_done * bytes, bytes), picture.tile_width, picture.tile_height};
}

// One unit. A run that is done belongs to the tile before, or to another picture.
void PictureEncoder::advance(Job& job) {
  EncodedPicture& picture = *job.picture;
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

void PictureEncoder::follow_pass(double pass_s) {
  if (!next_job()) {
    debt_s_ = 0.0;
    return;
  }
  const double time_s = pass_s > 0.0 ? kShare * pass_s : kIdle_s;
  if (pass_s > 0.0 && debt_s_ >= time_s) {
    debt_s_ -= time_s;
    return;
  }
  const auto begin = Time::now();
  do {
    advance(job_);
    if (job_.picture->is_done && !next_job()) break;
  } while (seconds_since(begin) + debt_s_ < time_s);
  debt_s_ = pass_s > 0.0 ? std::max(0.0, seconds_since(begin) + debt_s_ - time_s) : 0.0;
}

void PictureEncoder::encode_now(EncodedPicture& picture) {
  if (picture.is_done) return;
  // Where it is under way it is finished; else another run leaves that one as it is.
  if (job_.picture.get() == &picture) {
    while (!picture.is_done) advance(job_);
    return;
  }
  urgent_.picture = std::shared_ptr<EncodedPicture>(&picture, [](EncodedPicture*) {});
  while (!picture.is_done) advance(urgent_);
  urgent_.picture.reset();
}

void PictureEncoder::keep(const std::shared_ptr<EncodedPicture>& picture) {
  kept_[picture->identifier] = picture;
}

void PictureEncoder::forget(std::span<const std::string_view> identifiers) {
  for (const std::string_view identifier : identifiers) kept_.erase(std::string(identifier));
}

}  // namespace quire
