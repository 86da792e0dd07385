// Converts rows of a file's tensors to the kernels' formats. Called while weights are loaded, one tensor per thread. Types and sizes were
// already checked. The file is read and not accessed through its map, because reading a truncated file through its map would end the
// program.
#include "runtime/model/weights/pack_tensor.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "format/dequant.h"
#include "format/quantise.h"

namespace quire {
namespace {

// Buffers for one row in each intermediate form.
struct RowBuffers {
  explicit RowBuffers(std::size_t columns)
      : floats(columns), halves(columns), codes(columns), scales(columns / 16 + 1), minimums(columns / 16 + 1) {}
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minimums, units;
};

WeightFormat weight_format(UnpackedFormat format) {
  switch (format) {
    case UnpackedFormat::f32:
      return WeightFormat::f32;
    case UnpackedFormat::bf16:
      return WeightFormat::bf16;
    case UnpackedFormat::q4:
      return WeightFormat::q4;
    case UnpackedFormat::q4_table:
      return WeightFormat::q4_table;
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
    const bool four_bits = format != UnpackedFormat::q8;
    const std::size_t groups = columns / (four_bits ? 32 : 16);
    const std::span scales(buffers.scales.data(), groups);
    const std::span minimums(buffers.minimums.data(), groups);
    if (has_units(source.type)) {
      buffers.units.resize(columns / kUnitColumns * 2);
      unpack_units(source.type, bytes, buffers.units);
      packer.put_units(row, buffers.units);
    }
    if (four_bits) {
      unpack_q4_row(source.type, bytes, {buffers.codes, scales, minimums});
      packer.put_q4(row, buffers.codes, scales, minimums);
    } else {
      unpack_q8_row(source.type, bytes, {buffers.codes, scales, minimums});
      packer.put_q8(row, buffers.codes, scales, minimums);
    }
  }
}

// Packs a quantised matrix. Reads the rows with their scales and zero points; in some formats, this reads the codes of all rows.
Result<void> pack_quantised(const ModelFile& file, const TensorView& source, RowSelection selection, bool may_reorder,
                            PackedMatrix& matrix) {
  const auto read = [&file](std::span<const std::byte> part, std::span<std::byte> out) { return file.read(part, out); };
  const auto rows = QuantisedRows::open(*source.quantised, source.first_row, source.rows, may_reorder, read);
  if (!rows) return std::unexpected(rows.error());
  const std::size_t columns = source.columns;
  const bool four_bits = rows->format() == UnpackedFormat::q4 || rows->format() == UnpackedFormat::q4_table;
  RowBuffers buffers(columns);
  const std::span scales(buffers.scales.data(), columns / (four_bits ? 32 : 16));
  const std::span minimums(buffers.minimums.data(), scales.size());
  const auto num_rows = static_cast<std::uint32_t>(source.rows / selection.step);
  MatrixPacker packer(weight_format(rows->format()), num_rows, static_cast<std::uint32_t>(columns), rows->table());
  for (std::uint32_t row = 0; row < num_rows; ++row) {
    const std::uint64_t from = selection.first + std::uint64_t{row} * selection.step;
    switch (rows->format()) {
      case UnpackedFormat::q4:
      case UnpackedFormat::q4_table:
        rows->q4(from, {buffers.codes, scales, minimums});
        packer.put_q4(row, buffers.codes, scales, minimums);
        break;
      case UnpackedFormat::q8:
        rows->q8(from, {buffers.codes, scales, minimums});
        packer.put_q8(row, buffers.codes, scales, minimums);
        break;
      case UnpackedFormat::bf16:
        if (auto sound = rows->bf16(from, buffers.halves); !sound) return sound;
        packer.put_bf16(row, buffers.halves);
        break;
      case UnpackedFormat::f32:
        rows->f32(from, buffers.floats);
        packer.put_f32(row, buffers.floats);
        break;
    }
  }
  matrix = packer.finish();
  if (!rows->order().empty()) matrix.input_order = std::make_shared<const std::vector<std::uint32_t>>(rows->order());
  return {};
}

// Packs a transposed matrix: the rows of the file are the inputs.
Result<void> pack_transposed(const ModelFile& file, const TensorView& source, RowSelection selection, PackedMatrix& matrix) {
  PackedMatrix whole;
  if (auto packed = pack_matrix(file, source, {}, false, whole); !packed) return packed;
  const std::uint32_t inputs = whole.rows;
  const std::uint32_t outputs = whole.columns / selection.step;
  std::vector<float> values(std::size_t{outputs} * inputs), row(whole.columns);
  for (std::uint32_t input = 0; input < inputs; ++input) {
    unpack_row(whole, input, row);
    for (std::size_t output = 0; output < outputs; ++output)
      values[output * inputs + input] = row[selection.first + output * selection.step];
  }
  MatrixPacker packer(whole.format == WeightFormat::bf16 ? WeightFormat::bf16 : WeightFormat::f32, outputs, inputs);
  for (std::uint32_t output = 0; output < outputs; ++output)
    packer.put_f32(output, std::span(values).subspan(std::size_t{output} * inputs, inputs));
  matrix = packer.finish();
  return {};
}

Result<void> pack_taps(const ModelFile& file, const TensorView& source, std::uint32_t taps, PackedMatrix& matrix) {
  std::vector<float> values, row(source.columns);
  if (auto read = pack_vector(file, source, {}, values); !read) return read;
  const std::size_t inputs = row.size() / taps;
  const auto outputs = static_cast<std::uint32_t>(source.rows);
  MatrixPacker packer(WeightFormat::f32, outputs, source.columns);
  for (std::uint32_t output = 0; output < outputs; ++output) {
    const float* from = values.data() + output * row.size();
    for (std::size_t input = 0; input < inputs; ++input)
      for (std::size_t tap = 0; tap < taps; ++tap) row[tap * inputs + input] = from[input * taps + tap];
    packer.put_f32(output, row);
  }
  matrix = packer.finish();
  return {};
}

// Calls body(row, bytes of the row) for each row. Reads several rows at a time from the file; the map is not used, because reading a
// truncated file through its map would end the program.
template <class Body>
Result<void> each_row(const ModelFile& file, const TensorView& source, Body body) {
  constexpr std::size_t kReadBytes = 256 << 10;
  const std::size_t row_size = source.data.size() / source.rows;
  const std::size_t rows_at_once = std::min<std::size_t>(source.rows, kReadBytes / std::max<std::size_t>(row_size, 1) + 1);
  std::vector<std::byte> bytes(rows_at_once * row_size);
  for (std::size_t first = 0; first < source.rows; first += rows_at_once) {
    const std::size_t count = std::min<std::size_t>(rows_at_once, source.rows - first);
    const std::span part(bytes.data(), count * row_size);
    if (auto read = file.read(source.data.subspan(first * row_size, part.size()), part); !read) return read;
    for (std::size_t i = 0; i < count; ++i)
      if (auto done = body(static_cast<std::uint32_t>(first + i), part.subspan(i * row_size, row_size)); !done) return done;
  }
  return {};
}

Result<void> pack_quantising(const ModelFile& file, const TensorView& source, WeightQuantisation quantise, PackedMatrix& matrix) {
  const bool four_bits = quantise == WeightQuantisation::q4_k;
  const std::size_t columns = source.columns, groups = columns / (four_bits ? 32 : 16);
  RowBuffers buffers(columns);
  const std::span scales(buffers.scales.data(), groups), minimums(buffers.minimums.data(), groups);
  if (four_bits && columns % kUnitColumns == 0) buffers.units.resize(columns / kUnitColumns * 2);
  MatrixPacker packer(four_bits ? WeightFormat::q4 : WeightFormat::q8, static_cast<std::uint32_t>(source.rows),
                      static_cast<std::uint32_t>(columns));
  auto read = each_row(file, source, [&](std::uint32_t row, std::span<const std::byte> bytes) -> Result<void> {
    dequantise_row(source.type, bytes, buffers.floats);
    if (!all_finite(buffers.floats))
      return fail(ErrorCode::corrupt, source.name, "contains NaN or Inf, which cannot be quantised",
                  "leave --quantize out, or download the model again");
    if (four_bits) {
      quantise_q4_row(buffers.floats, {buffers.codes, scales, minimums}, buffers.units);
      if (!buffers.units.empty()) packer.put_units(row, buffers.units);
      packer.put_q4(row, buffers.codes, scales, minimums);
    } else {
      quantise_q8_row(buffers.floats, {buffers.codes, scales, minimums});
      packer.put_q8(row, buffers.codes, scales, minimums);
    }
    return {};
  });
  if (!read) return read;
  matrix = packer.finish();
  return {};
}

}  // namespace

bool can_be_quantised(const TensorView& source) {
  const bool has_floats = source.type == GgmlType::f32 || source.type == GgmlType::f16 || source.type == GgmlType::bf16;
  return source.num_dims >= 2 && source.quantised == nullptr && has_floats && source.columns % kGroupColumns == 0;
}

Result<void> pack_vector(const ModelFile& file, const TensorView& source, RowSelection selection, std::vector<float>& vector) {
  std::vector<std::byte> bytes(source.data.size());
  if (auto read = file.read(source.data, bytes); !read) return read;
  std::vector<float> all(source.rows * source.columns), row(source.columns);
  const std::size_t row_size = bytes.size() / source.rows;
  for (std::size_t i = 0; i < source.rows; ++i) {
    dequantise_row(source.type, std::span(bytes).subspan(i * row_size, row_size), row);
    for (std::size_t j = 0; j < row.size(); ++j) all[selection.transposed ? j * source.rows + i : i * source.columns + j] = row[j];
  }
  for (std::size_t i = selection.first; i < all.size(); i += selection.step) vector.push_back(all[i]);
  return {};
}

Result<void> pack_matrix(const ModelFile& file, const TensorView& source, RowSelection selection, bool may_reorder, PackedMatrix& matrix,
                         WeightQuantisation quantise) {
  if (selection.taps > 1) return pack_taps(file, source, selection.taps, matrix);
  if (selection.transposed) return pack_transposed(file, source, selection, matrix);
  if (source.quantised != nullptr) return pack_quantised(file, source, selection, may_reorder, matrix);
  QUIRE_CHECK(selection.step == 1, "interleaved rows are read only from quantised matrices");
  if (quantise != WeightQuantisation::none && can_be_quantised(source)) return pack_quantising(file, source, quantise, matrix);
  const UnpackedFormat format = *unpacked_format(source.type);
  MatrixPacker packer(weight_format(format), static_cast<std::uint32_t>(source.rows), static_cast<std::uint32_t>(source.columns),
                      code_table(source.type));
  RowBuffers buffers(source.columns);
  auto read = each_row(file, source, [&](std::uint32_t row, std::span<const std::byte> bytes) -> Result<void> {
    pack_row(source, format, row, bytes, buffers, packer);
    return {};
  });
  if (!read) return read;
  matrix = packer.finish();
  return {};
}

}  // namespace quire
