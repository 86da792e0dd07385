// Predicts from a file's headers the formats of its tensors in memory. Called when a model is inspected or loaded; reads no weights. The
// predictions must agree with the packers, because the memory for a model is planned with them.
#include "runtime/model/weights/weight_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "format/dequant.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/pack_tensor.h"

namespace quire {
namespace {

// Returns whether the matrix's columns may be reordered. Must agree with collect() in weights.cpp: experts and embeddings are not
// reordered.
bool may_reorder(const QuantisedMatrix& matrix) {
  return matrix.name.find(".experts.") == std::string::npos && !matrix.name.ends_with("embed_tokens");
}

UnpackedFormat format_of(const TensorView& tensor) {
  if (tensor.quantised == nullptr) return unpacked_format(tensor.type).value_or(UnpackedFormat::f32);
  return unpacked_format_of(*tensor.quantised, tensor.quantised->is_reordered, may_reorder(*tensor.quantised));
}

// Returns whether all codes of a tensor that becomes q8 fit into six bits.
bool fits_six_bits(const TensorView& tensor) {
  if (tensor.quantised != nullptr) return tensor.quantised->bits == 4;
  switch (tensor.type) {
    case GgmlType::q5_0:
    case GgmlType::q5_1:
    case GgmlType::q2_k:
    case GgmlType::q3_k:
    case GgmlType::q5_k:
    case GgmlType::q6_k:
    case GgmlType::tq1_0:
    case GgmlType::tq2_0:
    case GgmlType::nvfp4:
    case GgmlType::iq1_s:
    case GgmlType::iq1_m:
      return true;
    default:
      return false;
  }
}

std::string_view form_of(const TensorView& tensor) {
  switch (format_of(tensor)) {
    case UnpackedFormat::q4:
    case UnpackedFormat::q4_table:
      return "4 bits";
    case UnpackedFormat::q8:
      return fits_six_bits(tensor) ? "6 bits" : "8 bits";
    case UnpackedFormat::bf16:
      return "bf16";
    case UnpackedFormat::f32:
      break;
  }
  return "f32";
}

// Returns the estimated packed size of a quantised matrix. 16-bit scales are usually exact in f16. Zero points in the middle of the range
// take no space; other zero points are stored as f32 minimums.
std::uint64_t estimate_packed_bytes(const QuantisedMatrix& matrix, std::uint64_t values) {
  const bool wide = matrix.scale_type == ScaleType::f32;
  switch (unpacked_format_of(matrix, matrix.is_reordered, may_reorder(matrix))) {
    case UnpackedFormat::q4_table:
      return values / 2 + values / 32 * 2;
    case UnpackedFormat::q4:
      return values / 2 + values / 32 * (matrix.has_zero_points ? 8 : wide ? 4 : 2);
    case UnpackedFormat::q8: {
      const std::uint64_t scales = values / (matrix.group % 32 == 0 ? 32 : 16);
      const std::uint64_t codes = matrix.bits == 4 ? values / 4 * 3 : values;
      if (matrix.encoding == WeightEncoding::fp4) return codes + scales * (matrix.scale_divisor.empty() ? 2 : 4);
      const bool has_minimums = matrix.bits == 8 && matrix.has_zero_points;
      return codes + scales * (has_minimums ? 8 : wide ? 4 : 2);
    }
    case UnpackedFormat::bf16:
      return values * 2;
    case UnpackedFormat::f32:
      break;
  }
  return values * 4;
}

void add_notes(const std::vector<TensorView>& tensors, const CheckpointScheme& scheme, ModelInfo& info) {
  const auto any = [&](auto condition) {
    return std::ranges::any_of(tensors, [&](const TensorView& view) { return view.quantised != nullptr && condition(*view.quantised); });
  };
  if (scheme.has_activations)
    info.notes.emplace_back("activations use the type of --activations, not the quantisation in the model folder");
  if (any([](const QuantisedMatrix& matrix) { return matrix.encoding == WeightEncoding::fp8; }))
    info.notes.emplace_back("8-bit float weights are multiplied by their scale and rounded once to bf16");
  if (any([](const QuantisedMatrix& matrix) { return matrix.is_reordered && !may_reorder(matrix); }))
    info.notes.emplace_back(
        "experts or embeddings quantised with desc_act are stored as f32; a model quantised without desc_act is smaller and faster");
}

// Returns whether the tensor is a matrix of one or all experts, by its name in GGUF files or folders.
bool is_routed_expert(const TensorView& tensor) {
  return tensor.name.find("_exps.") != std::string::npos || tensor.name.find(".experts.") != std::string::npos;
}

}  // namespace

std::uint64_t estimate_packed_bytes(const TensorView& tensor) {
  const std::uint64_t padded = tensor.num_dims < 2 ? tensor.rows : (tensor.rows + kPanelRows - 1) / kPanelRows * kPanelRows;
  const std::uint64_t values = padded * tensor.columns;
  if (tensor.num_dims < 2) return values * 4;
  if (tensor.quantised != nullptr) return estimate_packed_bytes(*tensor.quantised, values);
  const std::uint64_t codes = fits_six_bits(tensor) ? values / 4 * 3 : values;  // for types that become q8
  switch (tensor.type) {
    case GgmlType::f32:
    case GgmlType::f16:
      return values * 4;
    case GgmlType::bf16:
      return values * 2;
    case GgmlType::iq4_nl:
    case GgmlType::mxfp4:
    case GgmlType::q4_0:
      return values / 2 + values / 32 * 2;
    case GgmlType::q4_1:
      return values / 2 + values / 32 * 4;
    case GgmlType::iq4_xs:
      return values / 2 + values / 32 + values / 256 * 2;
    case GgmlType::q4_k:
      return values / 2 + values / 32 * 2 + values / 256 * 4;
    case GgmlType::q8_0:
    case GgmlType::q5_0:
      return codes + values / 32 * 2;
    case GgmlType::q5_1:
      return codes + values / 32 * 4;
    case GgmlType::tq1_0:
    case GgmlType::tq2_0:
      return codes + values / 32 * 2;
    case GgmlType::q8_k:
    case GgmlType::iq1_s:
    case GgmlType::iq2_xxs:
    case GgmlType::iq3_xxs:
    case GgmlType::iq3_s:
      return codes + values / 32 * 4;
    case GgmlType::nvfp4:
      return codes + values / 16 * 2;
    case GgmlType::q3_k:
    case GgmlType::q6_k:
      return codes + values / 16 + values / 256 * 2;
    case GgmlType::iq1_m:
    case GgmlType::iq2_xs:
    case GgmlType::iq2_s:
      return codes + values / 16 * 4;
    case GgmlType::q2_k:
      return codes + values / 16 * 2 + values / 256 * 4;
    case GgmlType::q5_k:
      return codes + values / 32 * 2 + values / 256 * 4;
    default:
      return codes + values / 32 * 8;
  }
}

std::string describe_types(const std::vector<TensorView>& tensors) {
  std::map<std::string, std::uint32_t> counts;
  for (const TensorView& tensor : tensors)
    ++counts[tensor.quantised != nullptr ? type_name(*tensor.quantised) : std::string(ggml_type_name(tensor.type))];
  std::vector<std::pair<std::string, std::uint32_t>> order(counts.begin(), counts.end());
  // Sorts the commonest type first.
  std::ranges::sort(order, [](const auto& a, const auto& b) { return std::pair(b.second, a.first) < std::pair(a.second, b.first); });
  std::string text;
  for (const auto& [name, count] : order) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  return text;
}

// Decides by names, which are less precise than roles. A router counts as quantised here, but it is small. Image encoders are not
// quantised.
std::vector<TensorView> with_quantisation(std::vector<TensorView> tensors, WeightQuantisation quantise) {
  const auto is_of_vocabulary = [](const TensorView& tensor) {
    return tensor.name.find("embed") != std::string::npos || tensor.name.find("embd") != std::string::npos ||
           tensor.name == "output.weight" || tensor.name == "lm_head.weight";
  };
  const auto is_of_encoder = [](const TensorView& tensor) {
    return tensor.name.starts_with("v.") || tensor.name.starts_with("mm.") || tensor.name.find("vision") != std::string::npos;
  };
  for (TensorView& tensor : tensors) {
    if (quantise == WeightQuantisation::none || !can_be_quantised(tensor) || is_of_encoder(tensor)) continue;
    const bool four_bits = quantise == WeightQuantisation::q4_k && !is_of_vocabulary(tensor);
    tensor.type = !four_bits ? GgmlType::q8_0 : tensor.columns % kUnitColumns == 0 ? GgmlType::q4_k : GgmlType::q4_1;
  }
  return tensors;
}

void describe_weights(const std::vector<TensorView>& tensors, const CheckpointScheme& scheme, ModelInfo& info) {
  for (const std::string_view form : {"4 bits", "6 bits", "8 bits", "bf16", "f32"}) {
    WeightFormatSummary held{.form = std::string(form), .multiplies_integers = form.ends_with(" bits")};
    for (const TensorView& view : tensors) {
      if (view.num_dims < 2 || form_of(view) != form) continue;
      ++held.count;
      held.bytes += estimate_packed_bytes(view);
    }
    if (held.count > 0) info.held.push_back(std::move(held));
  }
  std::ranges::sort(info.held, std::ranges::greater{}, &WeightFormatSummary::bytes);
  for (const TensorView& view : tensors) {
    const std::uint64_t bytes = estimate_packed_bytes(view);
    info.weight_bytes += bytes;
    if (is_routed_expert(view)) info.expert_bytes += bytes;
  }
  if (scheme.method != CheckpointMethod::none) info.quantisation = describe(scheme);
  add_notes(tensors, scheme, info);
}

}  // namespace quire
