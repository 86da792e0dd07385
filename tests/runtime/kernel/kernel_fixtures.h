#pragma once
// Random matrices, activations and caches for the kernel tests.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "runtime/kernel/kernel.h"

namespace quire::kernel_test {

using Rng = std::mt19937;

inline std::vector<float> random_floats(Rng& rng, std::size_t n, float deviation = 1.0F) {
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(rng);
  return values;
}

inline std::uint32_t random_below(Rng& rng, std::uint32_t n) {
  return static_cast<std::uint32_t>(rng() % n);
}

struct WeightCase {
  WeightFormat format = WeightFormat::f32;
  bool halves = false;       // q8: two scales per 32
  bool minimums = true;      // q4, q8
  bool exact_in_f16 = true;  // q4, q8
  bool units = false;        // if 256 columns are whole blocks: scales and minimums are bytes times units
  const char* name = "";
};

inline std::vector<WeightCase> weight_cases() {
  return {{.format = WeightFormat::f32, .name = "f32"},
          {.format = WeightFormat::bf16, .name = "bf16"},
          {.format = WeightFormat::q4, .name = "q4"},
          {.format = WeightFormat::q4, .exact_in_f16 = false, .name = "q4_f32_scales"},
          {.format = WeightFormat::q4, .minimums = false, .name = "q4_no_minimums"},
          {.format = WeightFormat::q4_signed, .name = "q4_signed"},
          {.format = WeightFormat::q4_signed, .exact_in_f16 = false, .name = "q4_signed_f32_scales"},
          {.format = WeightFormat::q4_table, .name = "q4_table"},
          {.format = WeightFormat::q4_table, .minimums = false, .exact_in_f16 = false, .name = "q4_table_f32_scales"},
          {.format = WeightFormat::q4, .units = true, .name = "q4_units"},
          {.format = WeightFormat::q4_table, .minimums = false, .units = true, .name = "q4_table_units"},
          {.format = WeightFormat::q8, .units = true, .name = "q8_units"},
          {.format = WeightFormat::q8, .halves = true, .minimums = false, .units = true, .name = "q8_halves_units"},
          {.format = WeightFormat::q6, .name = "q6"},
          {.format = WeightFormat::q6, .halves = true, .minimums = false, .units = true, .name = "q6_halves_units"},
          {.format = WeightFormat::q8, .minimums = false, .name = "q8"},
          {.format = WeightFormat::q8, .halves = true, .minimums = false, .exact_in_f16 = false, .name = "q8_halves"},
          {.format = WeightFormat::q8, .halves = true, .name = "q8_halves_minimums"},
          {.format = WeightFormat::q8, .exact_in_f16 = false, .name = "q8_minimums"}};
}

// The values of the q4_table codes in tests: all differ, and they include both ends of a byte.
inline constexpr CodeTable kTestTable{128, 255, 3, 77, 201, 0, 140, 130, 120, 99, 150, 160, 31, 64, 222, 127};

inline float random_scale(Rng& rng, const WeightCase& kind, float deviation) {
  const float value = random_floats(rng, 1, deviation)[0];
  return kind.exact_in_f16 ? f16_to_float(float_to_f16_truncated(value)) : value;
}

// A packed matrix together with the weights that it encodes.
struct MatrixCase {
  PackedMatrix packed;
  std::vector<float> weights;  // [row][column]
};

inline void put_quantised_row(Rng& rng, const WeightCase& kind, MatrixPacker& packer, std::uint32_t row, std::span<float> weights) {
  const bool q6 = kind.format == WeightFormat::q6, q8 = q6 || kind.format == WeightFormat::q8;
  const std::size_t per_scale = q8 ? 16 : 32;
  std::vector<std::uint8_t> codes(weights.size());
  std::vector<float> scales(weights.size() / per_scale);
  std::vector<float> minimums(scales.size(), 0.0F);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(q6 ? 96 + rng() % 64 : rng() % (q8 ? 256 : 16));
  std::vector<float> units(2 * ((weights.size() + 255) / 256));
  for (float& unit : units) unit = random_scale(rng, {}, 0.001F);
  const bool in_units = kind.units && weights.size() % 256 == 0;
  if (in_units) packer.put_units(row, units);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const bool repeat = q8 && !kind.halves && i % 2 == 1;
    if (in_units && !repeat) {
      const float* unit = &units[i * per_scale / 256 * 2];
      scales[i] = unit[0] * static_cast<float>(static_cast<int>(rng() % 256) - 128);
      if (kind.minimums) minimums[i] = unit[1] * static_cast<float>(static_cast<int>(rng() % 256) - 128);
      continue;
    }
    scales[i] = repeat ? scales[i - 1] : random_scale(rng, kind, 0.01F);
    if (kind.format == WeightFormat::q4_signed)
      minimums[i] = -8.0F * scales[i];
    else if (kind.minimums)
      minimums[i] = repeat ? minimums[i - 1] : random_scale(rng, kind, 0.05F);
  }
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const int code = kind.format == WeightFormat::q4_table ? kTestTable[codes[k]] - 128 : static_cast<int>(codes[k]) - (q8 ? 128 : 0);
    weights[k] = std::fma(static_cast<float>(code), scales[k / per_scale], minimums[k / per_scale]);
  }
  q8 ? packer.put_q8(row, codes, scales, minimums) : packer.put_q4(row, codes, scales, minimums);
}

// Returns the format to request from a packer; the packer itself finds out whether minimums can be dropped.
inline WeightFormat packer_format(WeightFormat format) {
  return format == WeightFormat::q4_signed ? WeightFormat::q4 : format == WeightFormat::q6 ? WeightFormat::q8 : format;
}

inline MatrixCase random_matrix(Rng& rng, const WeightCase& kind, std::uint32_t rows, std::uint32_t columns) {
  MatrixPacker packer(packer_format(kind.format), rows, columns, kTestTable);
  MatrixCase made;
  made.weights.resize(std::size_t{rows} * columns);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::span<float> weights = std::span(made.weights).subspan(std::size_t{row} * columns, columns);
    if (is_integer(kind.format)) {
      put_quantised_row(rng, kind, packer, row, weights);
      continue;
    }
    const std::vector<float> values = random_floats(rng, columns, 0.05F);
    for (std::size_t k = 0; k < columns; ++k)
      weights[k] = kind.format == WeightFormat::f32 ? values[k] : bf16_to_float(float_to_bf16(values[k]));
    packer.put_f32(row, values);
  }
  made.packed = packer.finish();
  return made;
}

inline std::string isa_name(KernelIsa isa) {
  switch (isa) {
    case KernelIsa::avx2:
      return "avx2";
    case KernelIsa::avx_vnni:
      return "avx_vnni";
    case KernelIsa::avx512:
      return "avx512";
    case KernelIsa::avx512_bf16:
      return "avx512_bf16";
    case KernelIsa::amx:
      return "amx";
    case KernelIsa::neon:
      return "neon";
    case KernelIsa::neon_i8mm:
      return "neon_i8mm";
    default:
      return "reference";
  }
}

// The reference kernels, and the kernels for the processor family of this build.
#ifdef __aarch64__
inline constexpr std::array kIsasOfBuild{KernelIsa::reference, KernelIsa::neon, KernelIsa::neon_i8mm};
#else
inline constexpr std::array kIsasOfBuild{KernelIsa::reference, KernelIsa::avx2,        KernelIsa::avx_vnni,
                                         KernelIsa::avx512,    KernelIsa::avx512_bf16, KernelIsa::amx};
#endif

// Returns every table this processor can run, the reference first.
inline std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> found{&select_kernels(KernelIsa::reference)};
  for (const KernelIsa isa : kFastIsas)
    if (const auto table = find_kernels(isa)) found.push_back(*table);
  return found;
}

// Returns the tables to compare with the reference. A test that gets none skips: if (...empty()) GTEST_SKIP() << kNothingToCompare.
inline std::vector<const Kernels*> fast_kernels() {
  std::vector<const Kernels*> found = available_kernels();
  found.erase(found.begin());
  return found;
}
inline constexpr const char* kNothingToCompare = "this processor or this build has only the reference kernels: nothing to compare";

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace quire::kernel_test
