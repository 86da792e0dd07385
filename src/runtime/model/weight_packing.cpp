// Reads tensors and packs them, several at a time: tasks are independent and run on any thread in any order. Each source is read in pieces
// and given back to the system, so that loading never holds a model twice.
#include "runtime/model/weight_packing.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "format/dequant.h"

namespace quire {
namespace {

// One row of each intermediate form.
struct RowBuffers {
  explicit RowBuffers(std::size_t columns)
      : floats(columns), halves(columns), codes(columns), scales(columns / 16 + 1), minimums(columns / 16 + 1) {}
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minimums;
};

WeightFormat weight_format(UnpackedFormat format) {
  switch (format) {
    case UnpackedFormat::f32:
      return WeightFormat::f32;
    case UnpackedFormat::bf16:
      return WeightFormat::bf16;
    case UnpackedFormat::q4:
      return WeightFormat::q4;
    case UnpackedFormat::q8:
      return WeightFormat::q8;
  }
  return WeightFormat::f32;
}

void pack_row(const TensorView& source, UnpackedFormat format, std::uint32_t row, std::span<const std::byte> bytes, RowBuffers& buffers,
              MatrixPacker& packer) {
  const std::size_t columns = source.columns;
  if (format == UnpackedFormat::f32) {
    dequantise_row(source.type, bytes, buffers.floats);
    packer.put_f32(row, buffers.floats);
  } else if (format == UnpackedFormat::bf16) {
    unpack_bf16_row(source.type, bytes, buffers.halves);
    packer.put_bf16(row, buffers.halves);
  } else {
    const bool four_bits = format == UnpackedFormat::q4;
    const std::size_t groups = columns / (four_bits ? 32 : 16);
    const std::span scales(buffers.scales.data(), groups);
    const std::span minimums(buffers.minimums.data(), groups);
    if (four_bits) {
      unpack_q4_row(source.type, bytes, {buffers.codes, scales, minimums});
      packer.put_q4(row, buffers.codes, scales, minimums);
    } else {
      unpack_q8_row(source.type, bytes, {buffers.codes, scales, minimums});
      packer.put_q8(row, buffers.codes, scales, minimums);
    }
  }
}

Result<void> pack_vector(const ModelFile& file, const PackTask& task) {
  const TensorView& source = task.source;
  std::vector<std::byte> bytes(source.data.size());
  if (auto read = file.read(source.data, bytes); !read) return read;
  std::vector<float> row(source.columns);
  task.vector->resize(source.rows * source.columns);
  const std::size_t row_size = bytes.size() / source.rows;
  for (std::size_t i = 0; i < source.rows; ++i) {
    dequantise_row(source.type, std::span(bytes).subspan(i * row_size, row_size), row);
    for (std::size_t j = 0; j < row.size(); ++j) (*task.vector)[task.transposes ? j * source.rows + i : i * source.columns + j] = row[j];
  }
  return {};
}

// Some rows at a time are read from the file: its map would stop the program if someone cut the file now.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, PackedMatrix& matrix) {
  constexpr std::size_t kReadBytes = 256 << 10;
  const std::size_t row_size = source.data.size() / source.rows;
  const std::size_t rows_at_once = std::min<std::size_t>(source.rows, kReadBytes / std::max<std::size_t>(row_size, 1) + 1);
  const UnpackedFormat format = *unpacked_format(source.type);
  MatrixPacker packer(weight_format(format), static_cast<std::uint32_t>(source.rows), static_cast<std::uint32_t>(source.columns));
  RowBuffers buffers(source.columns);
  std::vector<std::byte> bytes(rows_at_once * row_size);
  for (std::size_t first = 0; first < source.rows; first += rows_at_once) {
    const std::size_t count = std::min<std::size_t>(rows_at_once, source.rows - first);
    const std::span part(bytes.data(), count * row_size);
    if (auto read = file.read(source.data.subspan(first * row_size, part.size()), part); !read) return read;
    for (std::size_t i = 0; i < count; ++i)
      pack_row(source, format, static_cast<std::uint32_t>(first + i), part.subspan(i * row_size, row_size), buffers, packer);
  }
  matrix = packer.finish();
  return {};
}

}  // namespace

Result<void> pack_weights(const ModelFile& file, std::vector<PackTask>& tasks, ThreadPool& pool, void (*progress)(double)) {
  // The largest first, so that no thread starts one when the others have finished.
  std::ranges::sort(tasks, std::ranges::greater{}, [](const PackTask& task) { return task.source.data.size(); });
  std::uint64_t total = 1;
  for (const PackTask& task : tasks) total += task.source.data.size();
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  Result<void> outcome;
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(static_cast<std::uint32_t>(tasks.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end && !failed; ++i) {
      const PackTask& task = tasks[i];
      auto packed = task.vector != nullptr ? pack_vector(file, task) : pack_matrix(file, task.source, *task.matrix);
      if (!packed) {
        const std::lock_guard lock(mutex);
        failed = true;
        outcome = std::move(packed);
        return;
      }
      const std::uint64_t so_far = done.fetch_add(task.source.data.size()) + task.source.data.size();
      if (progress != nullptr && std::this_thread::get_id() == caller) progress(static_cast<double>(so_far) / static_cast<double>(total));
    }
  });
  if (outcome && progress != nullptr) progress(1.0);
  return outcome;
}

}  // namespace quire
