// Called by the writer of a file of packed matrices (packed_file.h), from threads that pack.
#include "runtime/model/kept/stretch_writer.h"

#include <algorithm>

#include "runtime/model/kept/packed_file.h"

namespace quire {
namespace {

constexpr std::uint64_t kStretchBytes = std::uint64_t{2} << 20U;

}  // namespace

Result<void> StretchWriter::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::uint64_t number = offset / kStretchBytes, within = offset % kStretchBytes;
    const std::span<const std::byte> part = bytes.first(std::min<std::size_t>(bytes.size(), kStretchBytes - within));
    bytes = bytes.subspan(part.size());
    offset += part.size();
    if (part.size() == kStretchBytes) {
      if (auto written = file_.write(part, number * kStretchBytes); !written) return written;
      continue;
    }
    std::map<std::uint64_t, Stretch>::node_type full;
    {
      const std::lock_guard lock(mutex_);
      Stretch& stretch = open_[number];
      if (stretch.bytes.empty()) stretch.filled = number == 0 ? first_ : 0;
      stretch.bytes.resize(kStretchBytes);
      std::ranges::copy(part, stretch.bytes.begin() + static_cast<std::ptrdiff_t>(within));
      stretch.end = std::max(stretch.end, within + part.size());
      stretch.filled += (part.size() + alignment_ - 1) / alignment_ * alignment_;
      if (stretch.filled == kStretchBytes) full = open_.extract(number);
    }
    if (full.empty()) continue;
    if (auto written = file_.write(full.mapped().bytes, number * kStretchBytes); !written) return written;
  }
  return {};
}

Result<void> StretchWriter::finish() {
  for (const auto& [number, stretch] : open_)
    if (auto written = file_.write(std::span(stretch.bytes).first(stretch.end), number * kStretchBytes); !written) return written;
  open_.clear();
  return {};
}

}  // namespace quire
