// Groups the tensors of each quantised matrix and checks their shapes. Called once when a model is inspected and once when it is loaded.
// Reads headers, and the shapes that compressed-tensors stores as tensors. Names are as in AutoGPTQ, AutoAWQ and compressed-tensors, and as
// in transformers for fp8 and MXFP4.
#include "runtime/model/weights/quantised_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "format/quote.h"

namespace quire {
namespace {

constexpr const char* kFetchAgain = "download the model again";
constexpr const char* kConfigRemedy = "use the config that belongs to the weights";
constexpr std::uint64_t kMostColumns = std::uint64_t{1} << 31U;

using Parts = std::map<std::string_view, const SafetensorsTensor*, std::less<>>;

std::string shape_in_brackets(const SafetensorsTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

std::unexpected<Error> wrong_shape(const SafetensorsTensor& tensor, const std::string& wanted) {
  return fail(ErrorCode::corrupt, tensor.name,
              fmt::format("has shape {}, but the other tensors require {}", shape_in_brackets(tensor), wanted), kFetchAgain);
}

Result<void> check_shape(const SafetensorsTensor& tensor, std::initializer_list<std::uint64_t> shape) {
  if (std::ranges::equal(tensor.shape, shape)) return {};
  return wrong_shape(tensor, fmt::format("[{}]", fmt::join(shape, ", ")));
}

Result<void> check_dtype(const SafetensorsTensor& tensor, std::initializer_list<std::string_view> dtypes) {
  if (std::ranges::find(dtypes, std::string_view(tensor.dtype)) != dtypes.end()) return {};
  return fail(ErrorCode::unsupported, tensor.name,
              fmt::format("has element type {}, but this format requires {}", tensor.dtype, fmt::join(dtypes, " or ")),
              "use a model in this format from another source");
}

Result<ScaleType> scale_type(const SafetensorsTensor& tensor) {
  if (tensor.dtype == "F32") return ScaleType::f32;
  if (tensor.dtype == "F16") return ScaleType::f16;
  if (tensor.dtype == "BF16") return ScaleType::bf16;
  if (tensor.dtype == "F8_E8M0") return ScaleType::e8m0;
  return fail(ErrorCode::unsupported, tensor.name, fmt::format("contains scales of element type {}, which is not supported", tensor.dtype),
              "use a model whose scales are F32, F16 or BF16");
}

// Assembles a matrix from the tensors of one module.
class Assembler {
 public:
  Assembler(const CheckpointScheme& scheme, std::string_view module, const Parts& parts, const ReadTensor& read)
      : scheme_(scheme), parts_(parts), read_(read) {
    matrix_.name = module;
  }

  Result<QuantisedMatrix> run() {
    if (scheme_.method == CheckpointMethod::mxfp4) {
      if (auto done = stacked_fp4(); !done) return std::unexpected(std::move(done.error()));
      return std::move(matrix_);
    }
    const auto assemble = scheme_.method == CheckpointMethod::gptq || scheme_.method == CheckpointMethod::awq ? &Assembler::words_by_columns
                          : find("weight_packed") != nullptr                                                  ? &Assembler::words_by_rows
                                                                                                              : &Assembler::bytes_by_rows;
    if (auto done = (this->*assemble)(); !done) return std::unexpected(std::move(done.error()));
    if (matrix_.rows == 0 || matrix_.columns == 0 || matrix_.columns > kMostColumns || matrix_.rows > kMostColumns)
      return fail(ErrorCode::corrupt, matrix_.codes_name,
                  fmt::format("has {} rows and {} columns, which is out of range", matrix_.rows, matrix_.columns), kFetchAgain);
    return std::move(matrix_);
  }

 private:
  [[nodiscard]] const SafetensorsTensor* find(std::string_view part) const {
    const auto found = parts_.find(part);
    return found == parts_.end() ? nullptr : found->second;
  }
  Result<const SafetensorsTensor*> need(std::string_view part) const {
    if (const SafetensorsTensor* tensor = find(part)) return tensor;
    const char joint = scheme_.method == CheckpointMethod::mxfp4 ? '_' : '.';
    return fail(ErrorCode::corrupt, fmt::format("{}{}{}", matrix_.name, joint, part), "the model does not contain this tensor",
                kFetchAgain);
  }

  void take_codes(const SafetensorsTensor& tensor) {
    matrix_.codes = tensor.data;
    matrix_.codes_name = tensor.name;
  }
  Result<void> take_scales(const SafetensorsTensor& tensor) {
    auto type = scale_type(tensor);
    if (!type) return std::unexpected(std::move(type.error()));
    matrix_.scale_type = *type;
    matrix_.scales = tensor.data;
    matrix_.scales_name = tensor.name;
    return {};
  }
  void take_zeros(const SafetensorsTensor& tensor, ZeroEncoding encoding) {
    matrix_.zero_encoding = encoding;
    matrix_.zeros = tensor.data;
    matrix_.zeros_name = tensor.name;
  }
  Result<void> take_column_groups(std::string_view part) {
    const SafetensorsTensor* tensor = find(part);
    if (tensor == nullptr) return {};
    if (auto sound = check_dtype(*tensor, {"I32"}); !sound) return sound;
    if (auto sound = check_shape(*tensor, {matrix_.columns}); !sound) return sound;
    matrix_.column_groups = tensor->data;
    matrix_.column_groups_name = tensor->name;
    return {};
  }

  Result<void> set_group(std::uint64_t group) {
    matrix_.group = group == 0 ? matrix_.columns : group;
    if (matrix_.group > 0 && matrix_.columns % matrix_.group == 0) return {};
    return fail(ErrorCode::corrupt, matrix_.codes_name,
                fmt::format("{} columns are not a multiple of the group size {}", matrix_.columns, group), kConfigRemedy);
  }

  // Reads GPTQ and AWQ: the scales of a group are adjacent, and the codes are in words of 32 bits.
  Result<void> words_by_columns() {
    const bool is_awq = scheme_.method == CheckpointMethod::awq;
    const auto codes = need("qweight"), scales = need("scales"), zeros = need("qzeros");
    for (const auto* tensor : {&codes, &scales, &zeros})
      if (!*tensor) return std::unexpected(tensor->error());
    for (const auto* tensor : {&codes, &scales, &zeros})
      if ((**tensor)->shape.size() != 2) return wrong_shape(***tensor, "two dimensions");
    for (const auto* tensor : {&codes, &zeros})
      if (auto sound = check_dtype(***tensor, {"I32"}); !sound) return sound;
    const CheckpointWeights& weights = scheme_.weights.front();
    const std::uint64_t per_word = 32 / weights.bits;
    const std::vector<std::uint64_t>& shape = (*codes)->shape;
    if (std::ranges::any_of(shape, [](std::uint64_t size) { return size > kMostColumns; })) return wrong_shape(**codes, "less");
    matrix_.encoding = is_awq ? WeightEncoding::words_across : WeightEncoding::words_down;
    matrix_.bits = weights.bits;
    matrix_.columns = shape[0] * (is_awq ? 1 : per_word);
    matrix_.rows = shape[1] * (is_awq ? per_word : 1);
    matrix_.scales_by_group = true;
    matrix_.has_zero_points = weights.has_zeros;
    matrix_.zero_step = scheme_.has_offset_zeros ? 1 : 0;
    matrix_.is_reordered = scheme_.reorders;
    take_codes(**codes);
    if (auto sound = set_group(weights.group); !sound) return sound;
    if (matrix_.rows % per_word != 0) return wrong_shape(**codes, fmt::format("a multiple of {} outputs", per_word));
    if (auto sound = check_shape(**scales, {matrix_.num_groups(), matrix_.rows}); !sound) return sound;
    if (auto sound = check_shape(**zeros, {matrix_.num_groups(), matrix_.rows / per_word}); !sound) return sound;
    if (auto sound = take_scales(**scales); !sound) return sound;
    take_zeros(**zeros, ZeroEncoding::words_by_rows);
    return is_awq ? Result<void>{} : take_column_groups("g_idx");
  }

  // Reads MXFP4 and NVFP4: two codes per byte, and 8-bit scales.
  Result<void> fp4_by_rows(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    const std::vector<std::uint64_t>& shape = codes.shape;
    if (shape.size() != 2 || shape[1] > kMostColumns) return wrong_shape(codes, "two dimensions");
    if (auto sound = check_dtype(scales, {"U8", "F8_E8M0", "F8_E4M3"}); !sound) return sound;
    matrix_.encoding = WeightEncoding::fp4;
    matrix_.bits = 4;
    matrix_.rows = shape[0];
    matrix_.columns = 2 * shape[1];
    take_codes(codes);
    const bool is_nv = scales.dtype == "F8_E4M3";
    if (auto sound = set_group(is_nv ? 16 : 32); !sound) return sound;
    if (auto sound = check_shape(scales, {matrix_.rows, matrix_.num_groups()}); !sound) return sound;
    matrix_.scale_type = is_nv ? ScaleType::e4m3 : ScaleType::e8m0;
    matrix_.scales = scales.data;
    matrix_.scales_name = scales.name;
    if (!is_nv) return check_described(true);
    const auto divisor = need("weight_global_scale");
    if (!divisor) return std::unexpected(divisor.error());
    if (auto sound = check_dtype(**divisor, {"F32"}); !sound) return sound;
    if (auto sound = check_shape(**divisor, {1}); !sound) return sound;
    matrix_.scale_divisor = (*divisor)->data;
    return check_described(true);
  }

  // Reads gpt-oss: the matrices of all experts in one tensor, [expert][rows][columns / 32][16], and their scales.
  Result<void> stacked_fp4() {
    const auto codes = need("blocks"), scales = need("scales");
    for (const auto* tensor : {&codes, &scales})
      if (!*tensor) return std::unexpected(tensor->error());
    for (const auto* tensor : {&codes, &scales})
      if (auto sound = check_dtype(***tensor, {"U8"}); !sound) return sound;
    const std::vector<std::uint64_t>& shape = (*codes)->shape;
    if (shape.size() != 4 || shape[3] != 16 || (*codes)->data.empty()) return wrong_shape(**codes, "[experts, rows, groups, 16]");
    if (auto sound = check_shape(**scales, {shape[0], shape[1], shape[2]}); !sound) return sound;
    matrix_.encoding = WeightEncoding::fp4;
    matrix_.bits = 4;
    matrix_.rows = shape[0] * shape[1];
    matrix_.columns = 32 * shape[2];
    matrix_.group = 32;
    matrix_.scale_type = ScaleType::e8m0;
    matrix_.scales = (*scales)->data;
    matrix_.scales_name = (*scales)->name;
    take_codes(**codes);
    return {};
  }

  Result<void> words_by_rows() {
    if (const SafetensorsTensor* codes = find("weight_packed"); codes->dtype == "U8") {
      const auto scales = need("weight_scale");
      return scales ? fp4_by_rows(*codes, **scales) : std::unexpected(scales.error());
    }
    const auto codes = need("weight_packed"), scales = need("weight_scale"), shape = need("weight_shape");
    for (const auto* tensor : {&codes, &scales, &shape})
      if (!*tensor) return std::unexpected(tensor->error());
    if (auto sound = check_dtype(**codes, {"I32"}); !sound) return sound;
    if ((*codes)->shape.size() != 2) return wrong_shape(**codes, "two dimensions");
    if (auto done = read_shape(**shape); !done) return done;
    const std::uint64_t words = (*codes)->shape[1];
    matrix_.bits = words == (matrix_.columns + 7) / 8 ? 4 : 8;
    matrix_.encoding = WeightEncoding::words_in_rows;
    take_codes(**codes);
    const std::uint64_t per_word = 32 / matrix_.bits;
    if (auto sound = check_shape(**codes, {matrix_.rows, (matrix_.columns + per_word - 1) / per_word}); !sound) return sound;
    if (auto sound = group_by_scales(**scales); !sound) return sound;
    if (auto sound = take_zero_points(per_word); !sound) return sound;
    if (auto sound = take_column_groups("weight_g_idx"); !sound) return sound;
    matrix_.is_reordered = !matrix_.column_groups.empty();
    return check_described(false);
  }

  Result<void> read_shape(const SafetensorsTensor& tensor) {
    if (auto sound = check_dtype(tensor, {"I32", "I64"}); !sound) return sound;
    if (auto sound = check_shape(tensor, {2}); !sound) return sound;
    std::array<std::byte, 16> bytes{};
    if (auto done = read_(tensor.data, std::span(bytes).first(tensor.data.size())); !done) return done;
    std::array<std::int64_t, 2> sizes{};
    std::array<std::int32_t, 2> narrow{};
    std::memcpy(sizes.data(), bytes.data(), sizeof(sizes));
    std::memcpy(narrow.data(), bytes.data(), sizeof(narrow));
    if (tensor.dtype == "I32") sizes = {narrow[0], narrow[1]};
    for (const std::int64_t size : sizes)
      if (size <= 0 || static_cast<std::uint64_t>(size) > kMostColumns)
        return fail(ErrorCode::corrupt, tensor.name,
                    fmt::format("contains {} rows and {} columns, which is out of range", sizes[0], sizes[1]), kFetchAgain);
    matrix_.rows = static_cast<std::uint64_t>(sizes[0]);
    matrix_.columns = static_cast<std::uint64_t>(sizes[1]);
    return {};
  }

  // Reads scales: one for all rows, one per row, or [rows][groups]. fp8 may also have one scale per block of rows and columns
  // (take_blocks).
  Result<void> group_by_scales(const SafetensorsTensor& scales) {
    if (auto taken = take_scales(scales); !taken) return taken;
    matrix_.group = matrix_.columns;
    if (scales.shape.empty() || (scales.shape.size() <= 2 && scales.data.size() == scale_size(scales))) {
      matrix_.block_rows = matrix_.rows;
      return {};
    }
    const bool is_vector = scales.shape.size() == 1;
    const std::uint64_t groups = is_vector ? 1 : scales.shape[1];
    if (scales.shape.size() > 2 || scales.shape[0] != matrix_.rows || groups == 0 || matrix_.columns % groups != 0)
      return wrong_shape(scales, fmt::format("[{}, groups that divide {} columns]", matrix_.rows, matrix_.columns));
    matrix_.group = matrix_.columns / groups;
    return {};
  }
  static std::size_t scale_size(const SafetensorsTensor& scales) { return scales.dtype == "F32" ? 4 : scales.dtype == "F8_E8M0" ? 1 : 2; }

  Result<void> take_zero_points(std::uint64_t per_word) {
    const SafetensorsTensor* zeros = find("weight_zero_point");
    if (zeros == nullptr) return {};
    if (auto sound = check_dtype(*zeros, {"I32", "I8"}); !sound) return sound;
    const bool is_packed = zeros->dtype == "I32";
    if (matrix_.block_rows != 1) return wrong_shape(*zeros, "no zero points, because there is one scale for all rows");
    const std::uint64_t rows = is_packed ? (matrix_.rows + per_word - 1) / per_word : matrix_.rows;
    if (auto sound = check_shape(*zeros, {rows, matrix_.num_groups()}); !sound) return sound;
    matrix_.has_zero_points = true;
    take_zeros(*zeros, is_packed ? ZeroEncoding::words_down : ZeroEncoding::bytes);
    return {};
  }

  // Reads matrices with one byte per code.
  Result<void> bytes_by_rows() {
    const auto codes = need("weight");
    if (!codes) return std::unexpected(codes.error());
    if (auto sound = check_dtype(**codes, {"I8", "F8_E4M3"}); !sound) return sound;
    if ((*codes)->shape.size() != 2) return wrong_shape(**codes, "two dimensions");
    const bool is_float = (*codes)->dtype != "I8";
    matrix_.encoding = is_float ? WeightEncoding::fp8 : WeightEncoding::bytes;
    matrix_.rows = (*codes)->shape[0];
    matrix_.columns = (*codes)->shape[1];
    take_codes(**codes);
    if (matrix_.columns == 0 || matrix_.rows == 0) return wrong_shape(**codes, "at least one row and one column");
    if (is_float && find("weight_scale_inv") != nullptr) return take_blocks(*find("weight_scale_inv"));
    const auto scales = need("weight_scale");
    if (!scales) return std::unexpected(scales.error());
    if (is_float && are_blocks(**scales)) return take_blocks(**scales);
    if (auto sound = group_by_scales(**scales); !sound) return sound;
    if (is_float) return check_described(true);
    if (auto sound = take_zero_points(1); !sound) return sound;
    return check_described(false);
  }

  [[nodiscard]] bool are_blocks(const SafetensorsTensor& scales) const {
    return scales.shape.size() == 2 && scales.shape[1] > 1 && scales.shape[0] < matrix_.rows;
  }
  // Reads scales of blocks of 128 x 128 weights; the last blocks may be smaller.
  Result<void> take_blocks(const SafetensorsTensor& scales) {
    constexpr std::uint64_t kBlock = 128;
    if (auto taken = take_scales(scales); !taken) return taken;
    matrix_.group = kBlock;
    matrix_.block_rows = kBlock;
    return check_shape(scales, {(matrix_.rows + kBlock - 1) / kBlock, matrix_.num_groups()});
  }

  // Returns an error unless compressed-tensors' config_groups describe the matrix.
  Result<void> check_described(bool is_float) const {
    if (scheme_.method != CheckpointMethod::compressed_tensors) return {};
    const bool has_zeros = matrix_.zero_encoding != ZeroEncoding::none;
    for (const CheckpointWeights& weights : scheme_.weights)
      if (weights.bits == matrix_.bits && weights.is_float == is_float && (weights.has_zeros || !has_zeros) &&
          (weights.group == 0 || weights.group == matrix_.group))
        return {};
    return fail(ErrorCode::corrupt, matrix_.codes_name,
                fmt::format("{} bits in groups of {}{} do not match any of config_groups", matrix_.bits, matrix_.group,
                            has_zeros ? " with zeros" : ""),
                kConfigRemedy);
  }

  const CheckpointScheme& scheme_;
  const Parts& parts_;
  const ReadTensor& read_;
  QuantisedMatrix matrix_;
};

constexpr std::array<std::string_view, 4> kByColumns{"qweight", "qzeros", "scales", "g_idx"};
constexpr std::array<std::string_view, 7> kByRows{"weight_packed", "weight_scale", "weight_zero_point", "weight_global_scale",
                                                  "weight_shape",  "weight_g_idx", "weight_scale_inv"};
// Names of tensors with scales of activations, keys and values, which are ignored.
constexpr std::array<std::string_view, 9> kIgnoredTensors{
    "input_global_scale", "input_scale", "input_zero_point", "output_scale", "output_zero_point",
    "input_scale_ub",     "q_scale",     "k_scale",          "v_scale"};

bool is_one_of(std::string_view part, std::span<const std::string_view> names) {
  return std::ranges::find(names, part) != names.end();
}

bool is_part(const CheckpointScheme& scheme, const SafetensorsTensor& tensor, std::string_view part) {
  if (scheme.method == CheckpointMethod::mxfp4) return tensor.dtype == "U8" && (part == "blocks" || part == "scales");
  if (scheme.method == CheckpointMethod::gptq || scheme.method == CheckpointMethod::awq) return is_one_of(part, kByColumns);
  return is_one_of(part, kByRows) || (part == "weight" && (tensor.dtype == "I8" || tensor.dtype.starts_with("F8_")));
}

Result<TensorView> plain_view(const SafetensorsTensor& tensor) {
  auto type = tensor.type();
  if (!type) return std::unexpected(std::move(type.error()));
  return TensorView{.name = tensor.name,
                    .type = *type,
                    .num_dims = static_cast<std::uint32_t>(tensor.shape.size()),
                    .rows = tensor.rows(),
                    .columns = tensor.columns(),
                    .data = tensor.data};
}

TensorView quantised_view(QuantisedMatrix matrix, const char* end) {
  TensorView view{.name = matrix.name + end, .num_dims = 2, .rows = matrix.rows, .columns = matrix.columns, .data = matrix.codes};
  view.quantised = std::make_shared<const QuantisedMatrix>(std::move(matrix));
  return view;
}

}  // namespace

Result<std::vector<TensorView>> assemble_tensors(const CheckpointScheme& scheme, std::span<const SafetensorsTensor* const> tensors,
                                                 const ReadTensor& read) {
  std::vector<TensorView> views;
  std::map<std::string_view, Parts, std::less<>> modules;
  const bool is_plain = scheme.method == CheckpointMethod::none;
  for (const SafetensorsTensor* tensor : tensors) {
    const std::string_view name = tensor->name;
    const std::size_t dot = name.rfind(scheme.method == CheckpointMethod::mxfp4 ? '_' : '.');
    const std::string_view part = dot == name.npos ? name : name.substr(dot + 1);
    if (is_plain && (part == "qweight" || part == "weight_packed"))
      return fail(ErrorCode::unsupported, "config.json: quantization_config",
                  fmt::format("is missing, but {} is quantised", in_quotes(name)),
                  "copy the content of quantize_config.json into config.json as quantization_config, with a quant_method");
    if (!is_plain && dot != name.npos && is_part(scheme, *tensor, part)) {
      modules[name.substr(0, dot)].emplace(part, tensor);
      continue;
    }
    if (!is_plain && is_one_of(part, kIgnoredTensors)) continue;
    auto view = plain_view(*tensor);
    if (!view) return std::unexpected(std::move(view.error()));
    views.push_back(std::move(*view));
  }
  for (const auto& [name, parts] : modules) {
    auto matrix = Assembler(scheme, name, parts, read).run();
    if (!matrix) return std::unexpected(std::move(matrix.error()));
    views.push_back(quantised_view(std::move(*matrix), scheme.method == CheckpointMethod::mxfp4 ? "" : ".weight"));
  }
  return views;
}

}  // namespace quire
