// Called by PackedFileWriter (packed_file.h), on the threads that pack.
#include "runtime/model/packed/chunk_writer.h"

#include <algorithm>

#include "runtime/model/packed/packed_file.h"

namespace quire {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{2} << 20U;

}  // namespace

Result<void> ChunkWriter::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const std::uint64_t number = offset / kChunkBytes, within = offset % kChunkBytes;
    const std::span<const std::byte> part = bytes.first(std::min<std::size_t>(bytes.size(), kChunkBytes - within));
    bytes = bytes.subspan(part.size());
    offset += part.size();
    if (part.size() == kChunkBytes) {
      if (auto written = file_.write(part, number * kChunkBytes); !written) return written;
      continue;
    }
    std::map<std::uint64_t, Chunk>::node_type full;
    {
      const std::lock_guard lock(mutex_);
      Chunk& chunk = open_[number];
      if (chunk.bytes.empty()) chunk.filled = number == 0 ? first_ : 0;
      chunk.bytes.resize(kChunkBytes);
      std::ranges::copy(part, chunk.bytes.begin() + static_cast<std::ptrdiff_t>(within));
      chunk.end = std::max(chunk.end, within + part.size());
      chunk.filled += (part.size() + alignment_ - 1) / alignment_ * alignment_;
      if (chunk.filled == kChunkBytes) full = open_.extract(number);
    }
    if (full.empty()) continue;
    if (auto written = file_.write(full.mapped().bytes, number * kChunkBytes); !written) return written;
  }
  return {};
}

Result<void> ChunkWriter::finish() {
  for (const auto& [number, chunk] : open_)
    if (auto written = file_.write(std::span(chunk.bytes).first(chunk.end), number * kChunkBytes); !written) return written;
  open_.clear();
  return {};
}

}  // namespace quire
