// Parses a safetensors file in the order of its bytes: length of the header (u64), header (JSON), data. Called for each file of a model or
// adapter, on the thread that opens the file. The header and the index are not trusted: sizes, offsets and overlaps are checked, and file
// names may not leave the folder. The parser is fuzzed (tests/fuzz).
#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>

#include "format/damaged.h"
#include "format/json.h"
#include "format/quote.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "the host is little-endian because tensor data is used in place");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library
constexpr std::size_t kMaxDims = 8;
constexpr const char* kOtherTypes = "use a model in F32, F16 or BF16, or a GGUF file";

struct Dtype {
  std::string_view name;
  std::uint32_t bits;
};
constexpr std::array<Dtype, 22> kDtypes{{
    {"F32", 32},    {"F16", 16},    {"BF16", 16}, {"F64", 64}, {"I64", 64},        {"I32", 32},        {"I16", 16},    {"I8", 8},
    {"U64", 64},    {"U32", 32},    {"U16", 16},  {"U8", 8},   {"BOOL", 8},        {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},    {"C64", 64}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
}};

// Returns the number of bytes of the tensor's data, computed from its shape and element type.
Result<std::uint64_t> expected_bytes(const SafetensorsTensor& tensor, const std::string& field) {
  const auto* dtype = std::ranges::find(kDtypes, std::string_view(tensor.dtype), &Dtype::name);
  if (dtype == kDtypes.end())
    return fail(ErrorCode::unsupported, field, "has the unknown element type " + in_quotes(tensor.dtype), kOtherTypes);
  std::uint64_t elements = 1;
  for (const std::uint64_t size : tensor.shape)
    if (__builtin_mul_overflow(elements, size, &elements)) return damaged(field, "the shape overflows 64 bits");
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, std::uint64_t{dtype->bits}, &bits)) return damaged(field, "the size overflows 64 bits");
  if (bits % 8 != 0) return damaged(field, "the size is not a whole number of bytes");
  return bits / 8;
}

// Reads one entry of the header; `data` is everything after the header.
Result<SafetensorsTensor> read_tensor(const JsonRef& entry, std::string_view name, std::span<const std::byte> data) {
  SafetensorsTensor tensor;
  tensor.name = name;
  auto dtype = entry.get<std::string>("dtype");
  if (!dtype) return std::unexpected(std::move(dtype.error()));
  tensor.dtype = std::move(*dtype);
  const auto shape = entry.at("shape");
  if (!shape) return std::unexpected(shape.error());
  const auto sizes = shape->elements();
  if (!sizes) return std::unexpected(sizes.error());
  if (sizes->size() > kMaxDims)
    return damaged(shape->path(), fmt::format("has {} dimensions, more than the limit of {}", sizes->size(), kMaxDims));
  for (const JsonRef& size : *sizes) {
    auto number = size.as<std::uint64_t>();
    if (!number) return std::unexpected(std::move(number.error()));
    tensor.shape.push_back(*number);
  }
  const auto offsets = entry.at("data_offsets");
  if (!offsets) return std::unexpected(offsets.error());
  const auto ends = offsets->elements();
  if (!ends) return std::unexpected(ends.error());
  if (ends->size() != 2) return damaged(offsets->path(), fmt::format("has {} numbers instead of 2", ends->size()));
  const auto begin = (*ends)[0].as<std::uint64_t>();
  if (!begin) return std::unexpected(begin.error());
  const auto end = (*ends)[1].as<std::uint64_t>();
  if (!end) return std::unexpected(end.error());
  if (*begin > *end || *end > data.size())
    return damaged(offsets->path(), fmt::format("bytes {} to {} lie outside the {} bytes of data", *begin, *end, data.size()));
  auto size = expected_bytes(tensor, entry.path());
  if (!size) return std::unexpected(std::move(size.error()));
  if (*size != *end - *begin)
    return damaged(entry.path(),
                   fmt::format("has {} bytes of data, but the shape and dtype {} require {}", *end - *begin, tensor.dtype, *size));
  tensor.data = data.subspan(*begin, *size);
  return tensor;
}

Result<void> check_overlap(std::span<const SafetensorsTensor> tensors, std::string_view name) {
  std::vector<const SafetensorsTensor*> order;
  for (const SafetensorsTensor& tensor : tensors)
    if (!tensor.data.empty()) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const SafetensorsTensor* tensor) { return tensor->data.data(); });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data())
      return damaged(fmt::format("{}: {}", name, in_quotes(order[i]->name)),
                     "its data overlaps the data of " + in_quotes(order[i - 1]->name));
  return {};
}

struct Layout {
  std::string_view header;
  std::span<const std::byte> data;
};

Result<Layout> split_header(std::span<const std::byte> bytes, std::string_view name) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) return damaged(std::string(name), "the file ends inside the length of its header");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > bytes.size() - sizeof(length))
    return damaged(std::string(name), fmt::format("the header is {} bytes long, but the file has {} bytes", length, bytes.size()));
  const auto header = bytes.subspan(sizeof(length), length);
  return Layout{{reinterpret_cast<const char*>(header.data()), header.size()}, bytes.subspan(sizeof(length) + length)};
}

// Returns the file names of the shards in the index's weight_map (tensor -> file name within the folder), sorted and without duplicates.
Result<std::vector<std::string>> shard_names(const JsonRef& weight_map) {
  const auto map = weight_map.object();
  if (!map) return std::unexpected(map.error());
  std::vector<std::string> names;
  for (const auto& [tensor, file] : **map) {
    const auto* text = file.if_string();
    const std::string name = text ? std::string(text->data(), text->size()) : "";
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name == "..") {
      return weight_map.error(
          fmt::format("the file of {} is not a plain file name: {}", in_quotes({tensor.data(), tensor.size()}), in_quotes(name)));
    }
    names.push_back(name);
  }
  std::ranges::sort(names);
  const auto rest = std::ranges::unique(names);
  names.erase(rest.begin(), rest.end());
  return names;
}

}  // namespace

std::uint64_t SafetensorsTensor::rows() const {
  std::uint64_t product = 1;
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) product *= shape[d];
  return product;
}

Result<GgmlType> SafetensorsTensor::type() const {
  if (dtype == "F32") return GgmlType::f32;
  if (dtype == "F16") return GgmlType::f16;
  if (dtype == "BF16") return GgmlType::bf16;
  return fail(ErrorCode::unsupported, name, "has the unsupported element type " + dtype, kOtherTypes);
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string_view name) {
  const auto layout = split_header(bytes, name);
  if (!layout) return std::unexpected(layout.error());
  const auto header = parse_json(layout->header, name, {.max_bytes = kMaxHeaderBytes, .max_depth = 8, .reject_duplicate_keys = true});
  if (!header) return std::unexpected(header.error());
  const JsonRef root(*header, name);
  const auto entries = root.object();
  if (!entries) return std::unexpected(entries.error());
  SafetensorsFile file;
  for (const auto& [key, value] : **entries) {
    const std::string_view tensor_name(key.data(), key.size());
    if (tensor_name == "__metadata__") continue;
    if (tensor_name.empty()) return damaged(std::string(name), "the header contains a tensor without a name");
    const auto entry = root.at(tensor_name);
    if (!entry) return std::unexpected(entry.error());
    auto tensor = read_tensor(*entry, tensor_name, layout->data);
    if (!tensor) return std::unexpected(std::move(tensor.error()));
    file.tensors_.push_back(std::move(*tensor));
  }
  if (auto ok = check_overlap(file.tensors_, name); !ok) return std::unexpected(std::move(ok.error()));
  std::ranges::sort(file.tensors_, {}, &SafetensorsTensor::name);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto map = MappedFile::open(path);
  if (!map) return std::unexpected(std::move(map.error()));
  auto file = parse(map->bytes(), path);
  if (file) file->file_ = std::move(*map);
  return file;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Result<SafetensorsFolder> SafetensorsFolder::open(const std::string& folder) {
  const std::string index_path = folder + "/model.safetensors.index.json";
  std::vector<std::string> names{"model.safetensors"};
  auto index = read_json_file(index_path);
  if (!index && index.error().code != ErrorCode::not_found) return std::unexpected(std::move(index.error()));
  if (index) {
    const auto weight_map = JsonRef(*index, index_path).at("weight_map");
    if (!weight_map) return std::unexpected(weight_map.error());
    auto listed = shard_names(*weight_map);
    if (!listed) return std::unexpected(std::move(listed.error()));
    names = std::move(*listed);
  } else if (!std::filesystem::exists(folder + "/" + names[0])) {
    return fail(ErrorCode::not_found, folder, "the folder has neither model.safetensors nor model.safetensors.index.json",
                "use the folder of a Hugging Face model in safetensors format, or a GGUF file");
  }
  SafetensorsFolder result;
  for (const std::string& name : names) {
    auto shard = SafetensorsFile::open(fmt::format("{}/{}", folder, name));
    if (!shard) return std::unexpected(std::move(shard.error()));
    result.shards_.push_back(std::move(*shard));
  }
  if (auto ok = result.index_shards(); !ok) return std::unexpected(std::move(ok.error()));
  if (index) {
    if (auto ok = result.check_index(*index, index_path); !ok) return std::unexpected(std::move(ok.error()));
  }
  return result;
}

Result<void> SafetensorsFolder::index_shards() {
  for (const SafetensorsFile& shard : shards_) {
    for (const SafetensorsTensor& tensor : shard.tensors())
      if (!index_.emplace(tensor.name, &tensor).second) return damaged(in_quotes(tensor.name), "the tensor is in two shards");
  }
  return {};
}

Result<void> SafetensorsFolder::check_index(const boost::json::value& index, const std::string& path) const {
  for (const auto& [key, file] : index.at("weight_map").as_object()) {
    const std::string_view name(key.data(), key.size());
    const SafetensorsTensor* tensor = find(name);
    const auto& shard_name = file.as_string();
    const bool there =
        tensor != nullptr && std::ranges::any_of(shards_, [&](const SafetensorsFile& shard) {
          return shard.find(name) == tensor && shard.file()->path().ends_with("/" + std::string(shard_name.data(), shard_name.size()));
        });
    if (!there)
      return damaged(fmt::format("{}: weight_map", path),
                     fmt::format("{} is not in {}", in_quotes(name), in_quotes({shard_name.data(), shard_name.size()})));
  }
  return {};
}

const SafetensorsTensor* SafetensorsFolder::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

std::vector<const SafetensorsTensor*> SafetensorsFolder::tensors() const {
  std::vector<const SafetensorsTensor*> all;
  for (const SafetensorsFile& shard : shards_)
    for (const SafetensorsTensor& tensor : shard.tensors()) all.push_back(&tensor);
  return all;
}

std::vector<const MappedFile*> SafetensorsFolder::files() const {
  std::vector<const MappedFile*> all;
  for (const SafetensorsFile& shard : shards_)
    if (shard.file() != nullptr) all.push_back(shard.file());
  return all;
}

}  // namespace quire
