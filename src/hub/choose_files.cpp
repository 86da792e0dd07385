// Chooses files by their names alone; nothing is opened. Called with listings from the network, whose paths hub_listing.h has checked, and
// with listings of folders.
#include "hub/choose_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

namespace quire {
namespace {

// The order in which a quantization is chosen if none is given: first 4 bits, then more bits, then fewer.
constexpr auto kPreferred = std::to_array<std::string_view>(
    {"Q4_K_M", "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_L", "Q4_K_S", "Q4_0", "Q4_1",   "IQ4_NL", "IQ4_XS", "MXFP4",  "MXFP4_MOE",
     "Q5_K_M", "UD-Q5_K_XL", "Q5_K_S",  "Q5_0",   "Q5_1",   "Q6_K", "Q6_K_L", "Q8_0",   "Q3_K_L", "Q3_K_M", "UD-Q3_K_XL",
     "IQ3_M",  "Q3_K_S",     "IQ3_XS",  "IQ3_S",  "BF16",   "F16",  "FP16",   "Q2_K_L", "Q2_K",   "IQ2_M",  "F32"});

// Files at the top of a repository that describe a model.
constexpr auto kConfigs = std::to_array<std::string_view>({"config.json",
                                                           "generation_config.json",
                                                           "tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "tokenizer.model",
                                                           "special_tokens_map.json",
                                                           "added_tokens.json",
                                                           "vocab.json",
                                                           "vocab.txt",
                                                           "merges.txt",
                                                           "tekken.json",
                                                           "tiktoken.model",
                                                           "chat_template.json",
                                                           "chat_template.jinja",
                                                           "additional_chat_templates/tool_use.jinja",
                                                           "preprocessor_config.json",
                                                           "processor_config.json",
                                                           "video_preprocessor_config.json",
                                                           "quantize_config.json",
                                                           "modules.json",
                                                           "1_Pooling/config.json",
                                                           "normalizer.json",
                                                           "adapter_config.json",
                                                           "model.safetensors.index.json"});
constexpr auto kTokenizers = std::to_array<std::string_view>({"tokenizer.json", "tekken.json", "tiktoken.model"});

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool contains_file(std::span<const HubFile> files, std::string_view path) {
  return std::ranges::find(files, path, &HubFile::path) != files.end();
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_quant(std::string_view word) {
  constexpr auto kWhole = std::to_array<std::string_view>({"F32", "FP32", "F16", "FP16", "BF16", "MXFP4", "MXFP4_MOE", "NVFP4"});
  if (std::ranges::find(kWhole, word) != kWhole.end()) return true;
  if (word.starts_with("IQ") || word.starts_with("TQ")) word.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return word.size() >= 2 && word[0] == 'Q' && is_digit(word[1]) &&
         std::ranges::all_of(word, [&](char c) { return is_digit(c) || c == '_' || (c >= 'A' && c <= 'Z'); });
}

// The number of a part and the number of parts, in names such as NAME-00002-of-00003.gguf.
struct PartName {
  std::string_view stem;
  std::uint64_t number, count;
};

std::optional<PartName> part_name(std::string_view path, std::string_view extension) {
  constexpr std::string_view kLike = "-00000-of-00000";
  if (!path.ends_with(extension)) return std::nullopt;
  path.remove_suffix(extension.size());
  if (path.size() <= kLike.size()) return std::nullopt;
  const std::string_view end = path.substr(path.size() - kLike.size());
  const bool is_part = std::ranges::equal(end, kLike, [](char c, char like) { return like == '0' ? c >= '0' && c <= '9' : c == like; });
  if (!is_part) return std::nullopt;
  PartName part{path.substr(0, path.size() - kLike.size()), 0, 0};
  std::from_chars(end.data() + 1, end.data() + 6, part.number);
  std::from_chars(end.data() + 10, end.data() + 15, part.count);
  return part.number >= 1 && part.number <= part.count ? std::optional(part) : std::nullopt;
}

bool is_model_gguf(std::string_view path) {
  const std::string name = upper(base_name(path));
  return name.ends_with(".GGUF") && !contains(name, "MMPROJ") && !contains(name, "IMATRIX");
}

std::vector<std::string> quants_of(std::span<const GgufVariant> variants) {
  std::vector<std::string> quants;
  for (const GgufVariant& variant : variants)
    if (variant.is_complete()) quants.push_back(variant.quant.empty() ? variant.name : variant.quant);
  std::ranges::sort(quants);
  quants.erase(std::ranges::unique(quants).begin(), quants.end());
  return quants;
}

// Returns the variants that the user's text names: a quantization, or a file.
std::vector<const GgufVariant*> named_variants(std::span<const GgufVariant> variants, std::string_view wanted) {
  const std::string quant = upper(wanted);
  std::vector<const GgufVariant*> found;
  for (const GgufVariant& variant : variants) {
    const bool is_file =
        std::ranges::any_of(variant.parts, [&](const HubFile& part) { return part.path == wanted || base_name(part.path) == wanted; });
    if (is_file || variant.name == wanted || variant.quant == quant) found.push_back(&variant);
  }
  if (!found.empty()) return found;
  for (const GgufVariant& variant : variants)
    if (variant.quant == "UD-" + quant) found.push_back(&variant);
  return found;
}

// Returns the variants of the quantization that is chosen by default.
std::vector<const GgufVariant*> default_variants(std::span<const GgufVariant> variants) {
  std::vector<const GgufVariant*> found;
  for (const std::string_view quant : kPreferred) {
    for (const GgufVariant& variant : variants)
      if (variant.quant == quant && variant.is_complete()) found.push_back(&variant);
    if (!found.empty()) return found;
  }
  const GgufVariant* smallest = nullptr;
  for (const GgufVariant& variant : variants)
    if (variant.is_complete() && (smallest == nullptr || variant.num_bytes() < smallest->num_bytes())) smallest = &variant;
  if (smallest != nullptr) found.push_back(smallest);
  return found;
}

Result<ChosenFiles> choose_gguf(std::span<const HubFile> listing, std::span<const GgufVariant> variants, const HubName& name) {
  const auto found = name.variant.empty() ? default_variants(variants) : named_variants(variants, name.variant);
  const std::vector<std::string> quants = quants_of(variants);
  if (found.empty())
    return fail(ErrorCode::not_found, "MODEL",
                name.variant.empty() ? fmt::format("{} has no complete GGUF model", name.repo)
                                     : fmt::format("{} has no GGUF file of {}", name.repo, name.variant),
                quants.empty() ? "use another repository" : fmt::format("it has {}", fmt::join(quants, ", ")));
  if (found.size() > 1) {
    std::vector<std::string> names;
    for (const GgufVariant* variant : found) names.push_back(variant->parts.front().path);
    return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("{} has {} models of {}", name.repo, found.size(), found.front()->quant),
                fmt::format("name the file, as {0}:FILE: {1}", name.repo, fmt::join(names, ", ")));
  }
  const GgufVariant& chosen = *found.front();
  if (!chosen.is_complete())
    return fail(ErrorCode::not_found, "MODEL",
                fmt::format("{} has {} of {} parts of {}", name.repo, chosen.parts.size(), chosen.num_parts, chosen.name),
                quants.empty() ? "use another repository" : fmt::format("complete models: {}", fmt::join(quants, ", ")));
  ChosenFiles result{.files = chosen.parts, .model = chosen.parts.front().path, .quant = chosen.quant};
  for (const std::string& quant : quants)
    if (quant != chosen.quant && quant != chosen.name) result.other_quants.push_back(quant);
  for (const HubFile& file : listing)
    if (upper(base_name(file.path)).ends_with(".GGUF") && contains(upper(base_name(file.path)), "MMPROJ"))
      result.image_encoders.push_back(file.path);
  return result;
}

// Returns the files of weights at the top of the repository: the shards of the index, or model.safetensors. consolidated.safetensors
// repeats the same weights under other names.
std::vector<HubFile> weight_files(std::span<const HubFile> listing) {
  std::vector<HubFile> shards, others;
  bool has_index = false;
  for (const HubFile& file : listing) {
    has_index = has_index || file.path == "model.safetensors.index.json";
    if (contains(file.path, "/") || !file.path.ends_with(".safetensors")) continue;
    const auto part = part_name(file.path, ".safetensors");
    if (part && part->stem == "model")
      shards.push_back(file);
    else if (!file.path.starts_with("consolidated"))
      others.push_back(file);
  }
  if (has_index) return shards.empty() ? others : shards;
  std::erase_if(others, [](const HubFile& file) { return file.path != "model.safetensors" && file.path != "adapter_model.safetensors"; });
  return others;
}

Result<ChosenFiles> choose_safetensors(std::span<const HubFile> listing, const HubName& name) {
  ChosenFiles result;
  for (const HubFile& file : listing)
    if (std::ranges::find(kConfigs, file.path) != kConfigs.end()) result.files.push_back(file);
  const auto has = [&](std::string_view path) { return contains_file(result.files, path); };
  const std::vector<HubFile> weights = weight_files(listing);
  const bool is_adapter = has("adapter_config.json") && contains_file(weights, "adapter_model.safetensors");
  if (weights.empty() || (!has("config.json") && !is_adapter))
    return fail(ErrorCode::unsupported, "MODEL", fmt::format("{} has neither GGUF files nor config.json with model.safetensors", name.repo),
                "use a repository with one of these formats; many models have one whose name ends in -GGUF");
  std::set<std::uint64_t> numbers;
  std::uint64_t count = 0;
  for (const HubFile& file : weights) {
    const auto part = part_name(file.path, ".safetensors");
    if (!part) continue;
    numbers.insert(part->number);
    count = std::max(count, part->count);
  }
  if (numbers.size() < count)
    return fail(ErrorCode::not_found, "MODEL", fmt::format("{} has {} of {} shards of the weights", name.repo, numbers.size(), count),
                "use another repository");
  result.has_tokenizer = is_adapter || std::ranges::any_of(kTokenizers, has);
  result.files.insert(result.files.end(), weights.begin(), weights.end());
  return result;
}

}  // namespace

std::uint64_t GgufVariant::num_bytes() const {
  std::uint64_t sum = 0;
  for (const HubFile& part : parts) sum += part.size;
  return sum;
}

std::uint64_t ChosenFiles::num_bytes() const {
  std::uint64_t sum = 0;
  for (const HubFile& file : files) sum += file.size;
  return sum;
}

std::string quant_in(std::string_view path) {
  std::string name = upper(base_name(path));
  if (name.ends_with(".GGUF")) name.resize(name.size() - std::string_view(".GGUF").size());
  std::string found, before;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("-.", begin), name.size());
    std::string word = name.substr(begin, end - begin);
    if (is_quant(word)) found = before == "UD" ? "UD-" + word : word;
    before = std::move(word);
    begin = end + 1;
  }
  return found;
}

std::vector<GgufVariant> gguf_variants(std::span<const HubFile> listing) {
  std::map<std::string, GgufVariant> by_name;
  std::map<std::string, std::set<std::uint64_t>> numbers;
  std::vector<HubFile> sorted(listing.begin(), listing.end());
  std::ranges::sort(sorted, {}, &HubFile::path);
  for (HubFile& file : sorted) {
    if (!is_model_gguf(file.path)) continue;
    const auto part = part_name(file.path, ".gguf");
    const std::string name = part ? fmt::format("{}.gguf", part->stem) : file.path;
    // Parts of a model that was split twice, into different numbers of parts, belong to different variants.
    GgufVariant& variant = by_name[part ? fmt::format("{}/{}", name, part->count) : name];
    if (part && !numbers[fmt::format("{}/{}", name, part->count)].insert(part->number).second) continue;
    variant.name = name;
    variant.quant = quant_in(name);
    if (part) variant.num_parts = part->count;
    variant.parts.push_back(std::move(file));
  }
  std::vector<GgufVariant> variants;
  for (auto& [name, variant] : by_name) variants.push_back(std::move(variant));
  return variants;
}

Result<ChosenFiles> choose_files(std::span<const HubFile> listing, const HubName& name) {
  // The name of an image encoder's file is exact.
  for (const HubFile& file : listing)
    if (!name.variant.empty() && !is_model_gguf(file.path) && file.path.ends_with(".gguf") &&
        (file.path == name.variant || base_name(file.path) == name.variant))
      return ChosenFiles{.files = {file}, .model = file.path, .quant = quant_in(file.path)};
  const std::vector<GgufVariant> variants = gguf_variants(listing);
  if (!variants.empty()) return choose_gguf(listing, variants, name);
  if (!name.variant.empty())
    return fail(ErrorCode::not_found, "MODEL", fmt::format("{} has no GGUF files, so no quantization {}", name.repo, name.variant),
                fmt::format("write {} to use the repository as it is", name.repo));
  return choose_safetensors(listing, name);
}

}  // namespace quire
