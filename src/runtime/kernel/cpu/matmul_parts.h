#pragma once
// Code that integer products over Vec share; include a vec_*.h first. matmul.h has the contract.
#include "runtime/kernel/matmul.h"
#include "runtime/kernel/packed_layout.h"

namespace quire {
namespace {

// Reads scales and minimums of a panel, 16 at a time, as floats.
class PanelScales {
 public:
  PanelScales(const PackedMatrix& w, const std::uint8_t* panel)
      : units_(panel), bytes_(w.scale_bytes), unit_bytes_(unit_bytes(w)), has_minimums_(w.has_minimums) {}

  // Loads the units of the scales. Must be called before the scales of a group of 32 columns are read, for the first group and for each
  // group that begins a unit of 256 columns.
  void enter(std::uint32_t group) {
    if (bytes_ != 1) return;
    const std::uint8_t* at = units_ + group / (kUnitColumns / kGroupColumns) * unit_bytes_;
    scale_ = Vec::load_f16(at);
    if (has_minimums_) minimum_ = Vec::load_f16(at + 2 * kPanelRows);
  }
  [[nodiscard]] Vec scales(const std::uint8_t* at) const { return bytes_ == 1 ? Vec::load_i8(at) * scale_ : whole(at); }
  [[nodiscard]] Vec minimums(const std::uint8_t* at) const { return bytes_ == 1 ? Vec::load_i8(at) * minimum_ : whole(at); }

 private:
  [[nodiscard]] Vec whole(const std::uint8_t* at) const {
    return bytes_ == 2 ? Vec::load_f16(at) : Vec::load(reinterpret_cast<const float*>(at));
  }

  const std::uint8_t* units_;
  std::uint32_t bytes_;
  std::size_t unit_bytes_;
  bool has_minimums_;
  Vec scale_ = Vec::zero(), minimum_ = Vec::zero();
};

constexpr bool begins_units(std::uint32_t group) {
  return group % (kUnitColumns / kGroupColumns) == 0;
}

inline bool uses_integers(const PackedMatrix& w, const Activations& x) {
  return is_integer(x.mode) && is_integer(w.format);
}

// Calls run.operator()<format, scale groups per block of 32>() for the format and the scale groups of w.
template <class Run>
void with_format(const PackedMatrix& w, Run run) {
  const bool has_one_scale = w.scale_columns == kGroupColumns;
  if (w.format == WeightFormat::q4)
    run.template operator()<WeightFormat::q4, 1>();
  else if (w.format == WeightFormat::q4_signed)
    run.template operator()<WeightFormat::q4_signed, 1>();
  else if (w.format == WeightFormat::q4_table)
    run.template operator()<WeightFormat::q4_table, 1>();
  else if (w.format == WeightFormat::q6 && has_one_scale)
    run.template operator()<WeightFormat::q6, 1>();
  else if (w.format == WeightFormat::q6)
    run.template operator()<WeightFormat::q6, 2>();
  else if (has_one_scale)
    run.template operator()<WeightFormat::q8, 1>();
  else
    run.template operator()<WeightFormat::q8, 2>();
}

// Right shift that turns 128 * sum into zero_code() * sum.
template <WeightFormat kFormat>
constexpr int kOffsetShift = zero_code(kFormat) == 8    ? 4
                             : zero_code(kFormat) == 32 ? 2
                                                        : 0;

// offset_of() returns zero_code() times the sum of the codes of scale group i in a group of 32 inputs. float_sum() returns the sum of these
// codes times the scale of the activations; it is multiplied with minimums.
template <WeightFormat kFormat, int kScales>
std::int32_t offset_of(const Activations& x, std::size_t at, int i) {
  if constexpr (kScales == 2) return zero_code(kFormat) * x.half_sums[2 * at + static_cast<std::size_t>(i)];
  return x.offsets[at] >> kOffsetShift<kFormat>;
}
template <int kScales>
float float_sum(const Activations& x, std::size_t at, int i) {
  return kScales == 2 ? static_cast<float>(x.half_sums[2 * at + static_cast<std::size_t>(i)]) * x.scales[at] : x.sums[at];
}

}  // namespace
}  // namespace quire
