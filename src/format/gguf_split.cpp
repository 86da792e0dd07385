// Opens a model in several GGUF files, as llama-gguf-split writes them: PREFIX-00001-of-00003.gguf and so on. The first part has the
// metadata. Every part stores its number and the number of parts, and has tensors (the first may have none). Called once per model, on the
// thread that opens it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "format/damaged.h"
#include "format/gguf.h"
#include "format/quote.h"

namespace quire {
namespace {

constexpr std::uint64_t kMaxParts = 4096;

std::string part_suffix(std::uint64_t number, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

std::unexpected<Error> in_file(const std::string& path, Error error) {
  error.field = path + ": " + error.field;
  return std::unexpected(std::move(error));
}

// Returns the part's number, counted from 0.
Result<std::uint64_t> part_number(const GgufFile& part, std::uint64_t count) {
  auto number = part.get<std::uint64_t>("split.no");
  if (number && *number >= count) return damaged("split.no", fmt::format("is {}, but there are only {} parts", *number, count));
  return number;
}

// Returns an error if all parts together do not have the number of tensors that the header states.
Result<void> check_total(const GgufFile& whole) {
  const auto told = whole.get_optional<std::uint64_t>("split.tensors.count");
  if (!told) return std::unexpected(told.error());
  const std::optional<std::uint64_t>& total = *told;
  if (!total || *total == whole.tensors().size()) return {};
  return damaged("split.tensors.count", fmt::format("is {}, but the parts have {} tensors", *total, whole.tensors().size()));
}

}  // namespace

std::string gguf_stem(const std::string& path) {
  std::string stem = std::filesystem::path(path).stem().string();
  constexpr std::string_view kLike = "-00001-of-00001";
  if (stem.size() <= kLike.size()) return stem;
  const std::string_view end = std::string_view(stem).substr(stem.size() - kLike.size());
  const bool is_part =
      std::ranges::equal(end, kLike, [](char c, char like) { return like == '0' || like == '1' ? c >= '0' && c <= '9' : c == like; });
  if (is_part) stem.resize(stem.size() - kLike.size());
  return stem;
}

Result<GgufFile> GgufFile::open_parts(const std::string& path, GgufFile given, std::uint64_t count) {
  if (count > kMaxParts) return in_file(path, damaged("split.count", fmt::format("must be at most 4096, got {}", count)).error());
  const auto number = part_number(given, count);
  if (!number) return in_file(path, number.error());
  const std::string suffix = part_suffix(*number, count);
  if (!path.ends_with(suffix))
    return fail(ErrorCode::invalid_argument, path,
                fmt::format("the header says part {} of {}, but the file name does not end in {}", *number + 1, count, suffix),
                "rename all parts as llama-gguf-split named them");
  const std::string prefix = path.substr(0, path.size() - suffix.size());
  std::optional<GgufFile> whole;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = prefix + part_suffix(i, count);
    auto part = i == *number ? Result<GgufFile>(std::move(given)) : open_file(name);
    if (!part) {
      if (part.error().code == ErrorCode::not_found)
        return fail(ErrorCode::not_found, name, fmt::format("part {} of {} is missing", i + 1, count),
                    "download all parts into one folder");
      return part;
    }
    const auto its_count = part->get_or<std::uint64_t>("split.count", 1);
    const auto its_number = its_count ? part_number(*part, count) : std::unexpected(its_count.error());
    if (!its_number) return in_file(name, its_number.error());
    if (*its_count != count || *its_number != i)
      return in_file(name, damaged("split.no", fmt::format("the file says that it is part {} of {}", *its_number + 1, *its_count)).error());
    if (!whole)
      whole = std::move(*part);
    else if (auto added = whole->add_part(std::move(*part)); !added)
      return in_file(name, added.error());
  }
  if (auto total = check_total(*whole); !total) return in_file(path, total.error());
  return std::move(*whole);
}

Result<void> GgufFile::add_part(GgufFile part) {
  for (const GgufTensor& tensor : part.tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second)
      return damaged(in_quotes(tensor.name), "another part has a tensor with this name");
    tensors_.push_back(tensor);
  }
  files_.insert(files_.end(), std::move_iterator(part.files_.begin()), std::move_iterator(part.files_.end()));
  return {};
}

}  // namespace quire
