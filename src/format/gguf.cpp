// Parses GGUF in the order of the file: magic, version, two counts; metadata; tensor descriptions; padding; tensor data. Called once per
// model, on the thread that opens it. Counts and offsets are checked against the file's size before use, and products are checked for
// overflow. The parser is fuzzed (tests/fuzz).
#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "format/damaged.h"
#include "format/dequant.h"
#include "format/quote.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "the host is little-endian because tensor data is used in place");

constexpr std::uint64_t kMaxNameBytes = 65535;
constexpr std::uint32_t kMaxArrayDepth = 4;
constexpr std::uint32_t kMaxAlignment = 1U << 20;
constexpr std::uint64_t kMinMetadataBytes = 8 + 4 + 1;    // key length, type, a one-byte value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, number of dims, type, offset

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the size of a value of this type in bytes. Returns 0 for strings and arrays, because the file stores the size of each.
std::uint64_t fixed_size(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::u16:
    case GgufValueType::i16:
      return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32:
      return 4;
    case GgufValueType::u64:
    case GgufValueType::i64:
    case GgufValueType::f64:
      return 8;
    case GgufValueType::string:
    case GgufValueType::array:
      return 0;
  }
  return 0;
}

// Reads values from the bytes in order. Fails instead of reading past their end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] std::uint64_t remaining() const { return bytes_.size() - position_; }
  [[nodiscard]] std::span<const std::byte> since(std::uint64_t start) const { return bytes_.subspan(start, position_ - start); }

  std::optional<std::span<const std::byte>> take(std::uint64_t count) {
    if (count > remaining()) return std::nullopt;
    const auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  template <class T>
  std::optional<T> number() {
    const auto part = take(sizeof(T));
    if (!part) return std::nullopt;
    T value;
    std::memcpy(&value, part->data(), sizeof(T));
    return value;
  }

  std::optional<std::string_view> text() {
    const auto length = number<std::uint64_t>();
    if (!length) return std::nullopt;
    const auto part = take(*length);
    return part ? std::optional(as_text(*part)) : std::nullopt;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

}  // namespace

// Parses the header in one pass. Stops at the first error and then discards the partial result.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes), in_(bytes) {}

  Result<GgufFile> parse() {
    if (auto ok = header(); !ok) return std::unexpected(std::move(ok.error()));
    if (auto ok = metadata(); !ok) return std::unexpected(std::move(ok.error()));
    if (auto ok = tensors(); !ok) return std::unexpected(std::move(ok.error()));
    if (auto ok = place_tensors(); !ok) return std::unexpected(std::move(ok.error()));
    return std::move(file_);
  }

 private:
  std::unexpected<Error> cut_short(std::string field) const {
    return damaged(std::move(field), fmt::format("the file ends inside this field, at byte {}", bytes_.size()));
  }

  Result<void> header() {
    const auto magic = in_.take(4);
    if (!magic || as_text(*magic) != "GGUF") {
      return fail(ErrorCode::corrupt, "magic", "the file is not a GGUF file: it does not begin with 'GGUF'",
                  "use a GGUF file or the folder of a Hugging Face model");
    }
    const auto version = in_.number<std::uint32_t>();
    if (!version) return cut_short("version");
    if (auto ok = check_version(*version); !ok) return ok;
    file_.version_ = *version;
    const auto num_tensors = in_.number<std::uint64_t>();
    if (!num_tensors) return cut_short("tensor_count");
    const auto num_metadata = in_.number<std::uint64_t>();
    if (!num_metadata) return cut_short("metadata_kv_count");
    num_tensors_ = *num_tensors;
    num_metadata_ = *num_metadata;
    if (num_metadata_ > in_.remaining() / kMinMetadataBytes) return too_many("metadata_kv_count", num_metadata_);
    if (num_tensors_ > in_.remaining() / kMinTensorBytes) return too_many("tensor_count", num_tensors_);
    return {};
  }

  std::unexpected<Error> too_many(std::string field, std::uint64_t count) const {
    return damaged(std::move(field), fmt::format("{} entries cannot fit in a file of {} bytes", count, bytes_.size()));
  }

  static Result<void> check_version(std::uint32_t version) {
    if (version == 2 || version == 3) return {};
    if (version == std::byteswap(2U) || version == std::byteswap(3U))
      return fail(ErrorCode::unsupported, "version", "the file is big-endian", "convert it to little-endian (gguf-convert-endian)");
    return fail(ErrorCode::unsupported, "version",
                fmt::format("GGUF version {} is not supported (this build reads versions 2 and 3)", version),
                "convert the model again with a current llama.cpp");
  }

  // Reserves no memory for the counts that the header states: memory grows only with entries that are in the file.
  Result<void> metadata() {
    for (std::uint64_t i = 0; i < num_metadata_; ++i) {
      const auto key = in_.text();
      if (!key) return cut_short(fmt::format("metadata[{}].key", i));
      if (key->empty() || key->size() > kMaxNameBytes)
        return damaged(fmt::format("metadata[{}].key", i), fmt::format("the key must have 1 to 65535 bytes, got {}", key->size()));
      auto value = read_value(*key);
      if (!value) return std::unexpected(std::move(value.error()));
      if (!file_.values_.emplace(*key, *value).second) return damaged(in_quotes(*key), "the key occurs twice");
      file_.keys_.push_back(*key);
    }
    return {};
  }

  Result<GgufValueType> read_type(std::string_view key) {
    const auto number = in_.number<std::uint32_t>();
    if (!number) return cut_short(in_quotes(key));
    if (*number > static_cast<std::uint32_t>(GgufValueType::f64))
      return damaged(in_quotes(key), fmt::format("has the unknown value type {}", *number));
    return static_cast<GgufValueType>(*number);
  }

  Result<GgufValue> read_value(std::string_view key) {
    auto type = read_type(key);
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type == GgufValueType::array) return read_array(key, 1);
    GgufValue value;
    value.type = *type;
    if (*type == GgufValueType::string) {
      const auto text = in_.text();
      if (!text) return cut_short(in_quotes(key));
      value.bytes = std::as_bytes(std::span(*text));
      return value;
    }
    const auto bytes = in_.take(fixed_size(*type));
    if (!bytes) return cut_short(in_quotes(key));
    value.bytes = *bytes;
    return value;
  }

  Result<GgufValue> read_array(std::string_view key, std::uint32_t depth) {
    if (depth > kMaxArrayDepth) return damaged(in_quotes(key), fmt::format("arrays are nested more than {} deep", kMaxArrayDepth));
    GgufValue value;
    value.type = GgufValueType::array;
    auto type = read_type(key);
    if (!type) return std::unexpected(std::move(type.error()));
    value.element_type = *type;
    const auto count = in_.number<std::uint64_t>();
    if (!count) return cut_short(in_quotes(key));
    value.count = *count;
    const std::uint64_t start = in_.position();
    if (auto ok = skip_elements(key, value, depth); !ok) return std::unexpected(std::move(ok.error()));
    value.bytes = in_.since(start);
    return value;
  }

  Result<void> skip_elements(std::string_view key, const GgufValue& value, std::uint32_t depth) {
    if (const std::uint64_t size = fixed_size(value.element_type); size != 0) {
      if (value.count > in_.remaining() / size) return cut_short(in_quotes(key));
      (void)in_.take(value.count * size);
      return {};
    }
    for (std::uint64_t i = 0; i < value.count; ++i) {
      if (value.element_type == GgufValueType::string) {
        if (!in_.text()) return cut_short(fmt::format("{}[{}]", in_quotes(key), i));
      } else if (auto nested = read_array(key, depth + 1); !nested) {
        return std::unexpected(std::move(nested.error()));
      }
    }
    return {};
  }

  Result<void> tensors() {
    for (std::uint64_t i = 0; i < num_tensors_; ++i) {
      auto tensor = read_tensor(i);
      if (!tensor) return std::unexpected(std::move(tensor.error()));
      if (!file_.tensor_index_.emplace(tensor->name, file_.tensors_.size()).second)
        return damaged(in_quotes(tensor->name), "the tensor occurs twice");
      file_.tensors_.push_back(*tensor);
    }
    return {};
  }

  Result<GgufTensor> read_tensor(std::uint64_t index) {
    GgufTensor tensor;
    const auto name = in_.text();
    if (!name) return cut_short(fmt::format("tensors[{}].name", index));
    if (name->empty() || name->size() > kMaxNameBytes)
      return damaged(fmt::format("tensors[{}].name", index), fmt::format("the name must have 1 to 65535 bytes, got {}", name->size()));
    tensor.name = *name;
    const auto num_dims = in_.number<std::uint32_t>();
    if (!num_dims) return cut_short(in_quotes(*name));
    if (*num_dims > tensor.dims.size())
      return damaged(in_quotes(*name), fmt::format("the tensor has {} dimensions, more than the limit of 4", *num_dims));
    tensor.num_dims = *num_dims;
    for (std::uint32_t d = 0; d < tensor.num_dims; ++d) {
      const auto size = in_.number<std::uint64_t>();
      if (!size) return cut_short(in_quotes(*name));
      tensor.dims[d] = *size;
    }
    const auto type = in_.number<std::uint32_t>();
    const auto offset = in_.number<std::uint64_t>();
    if (!type || !offset) return cut_short(in_quotes(*name));
    const GgmlTypeInfo* info = find_ggml_type(*type);
    if (!info) return unknown_type(*name, *type);
    tensor.type = info->type;
    tensor.offset = *offset;
    return tensor;
  }

  static std::unexpected<Error> unknown_type(std::string_view name, std::uint32_t type) {
    return fail(ErrorCode::unsupported, in_quotes(name), fmt::format("has the unknown tensor type {}", type), weight_type_remedy());
  }

  Result<std::uint64_t> tensor_bytes(const GgufTensor& tensor) const {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : tensor.dims) {
      if (size == 0) return damaged(in_quotes(tensor.name), "a dimension is 0");
      if (__builtin_mul_overflow(elements, size, &elements)) return damaged(in_quotes(tensor.name), "the shape overflows 64 bits");
    }
    auto bytes = row_bytes(tensor.type, tensor.columns());
    if (!bytes) return damaged(in_quotes(tensor.name), bytes.error().message);
    std::uint64_t total = 0;
    if (__builtin_mul_overflow(*bytes, tensor.rows(), &total)) return damaged(in_quotes(tensor.name), "the size overflows 64 bits");
    return total;
  }

  Result<std::uint64_t> alignment() const {
    auto alignment = file_.get_or<std::uint32_t>("general.alignment", 32);
    if (!alignment) return std::unexpected(std::move(alignment.error()));
    if (!std::has_single_bit(*alignment) || *alignment > kMaxAlignment)
      return damaged("general.alignment", fmt::format("{} is not a power of two of at most {}", *alignment, kMaxAlignment));
    return *alignment;
  }

  Result<void> place_tensors() {
    auto align = alignment();
    if (!align) return std::unexpected(std::move(align.error()));
    if (file_.tensors_.empty()) return {};
    const std::uint64_t start = (in_.position() + *align - 1) / *align * *align;
    if (start > bytes_.size()) return cut_short("tensor data");
    const auto data = bytes_.subspan(start);
    for (GgufTensor& tensor : file_.tensors_) {
      auto size = tensor_bytes(tensor);
      if (!size) return std::unexpected(std::move(size.error()));
      if (tensor.offset % *align != 0)
        return damaged(in_quotes(tensor.name), fmt::format("offset {} is not a multiple of the alignment {}", tensor.offset, *align));
      if (tensor.offset > data.size() || *size > data.size() - tensor.offset) {
        return damaged(in_quotes(tensor.name),
                       fmt::format("offset {} plus size {} exceeds the {} bytes of tensor data", tensor.offset, *size, data.size()));
      }
      tensor.data = data.subspan(tensor.offset, *size);
    }
    return check_overlap();
  }

  Result<void> check_overlap() const {
    std::vector<const GgufTensor*> order;
    order.reserve(file_.tensors_.size());
    for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
    std::ranges::sort(order, {}, &GgufTensor::offset);
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i - 1]->offset + order[i - 1]->data.size() > order[i]->offset)
        return damaged(in_quotes(order[i]->name), "its data overlaps the data of " + in_quotes(order[i - 1]->name));
    return {};
  }

  std::span<const std::byte> bytes_;
  Reader in_;
  GgufFile file_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_metadata_ = 0;
};

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).parse();
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto file = open_file(path);
  if (!file) return file;
  const auto count = file->get_or<std::uint64_t>("split.count", 1);
  if (!count) return std::unexpected(count.error());
  return *count > 1 ? open_parts(path, std::move(*file), *count) : std::move(file);
}

Result<GgufFile> GgufFile::open_file(const std::string& path) {
  auto map = MappedFile::open(path);
  if (!map) return std::unexpected(std::move(map.error()));
  auto file = parse(map->bytes());
  if (!file) {
    file.error().field = path + ": " + file.error().field;
    return file;
  }
  file->files_.push_back(std::move(*map));
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace quire
