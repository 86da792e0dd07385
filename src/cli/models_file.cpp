// Reads the list of models. The parser of --config reads flat YAML: this file cuts nested blocks out of the text and moves them to the
// left, so that the same parser reads each block. Blank lines in place of other lines keep the line numbers.
#include "cli/models_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/nearest_name.h"
#include "base/trim.h"
#include "cli/flags/engine_flags.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kForm = "write 'models:', and below it an item such as '- model: PATH' for each model";

std::unexpected<Error> bad_models_line(std::size_t line, const std::string& message, std::string remedy) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("line {}: {}", line, message), std::move(remedy));
}

std::vector<std::string> lines_of_text(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool is_empty_line(std::string_view line) {
  const std::string_view text = trim_left(line, " \t");
  return text.empty() || text.starts_with('#');
}

// Returns the number of blanks at the beginning of a line.
std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(" \t"), line.size());
}

bool is_item(std::string_view line) {
  const std::string_view text = trim_left(line, " \t");
  return text == "-" || text.starts_with("- ");
}

// Cuts the block below the line "KEY:" out of `lines`, whose keys begin at the left. Returns the lines of the block at their places, and
// blank lines elsewhere; without the key, only blank lines. `has_items`: a list may begin at the left, too.
std::vector<std::string> cut_block(std::vector<std::string>& lines, std::string_view key, bool has_items, std::size_t& line) {
  std::vector<std::string> block(lines.size());
  line = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool is_inside = line > 0 && (is_empty_line(lines[i]) || indent_of(lines[i]) > 0 || (has_items && is_item(lines[i])));
    if (is_inside) {
      block[i] = std::exchange(lines[i], {});
      continue;
    }
    if (line > 0) break;
    const std::string_view text = trim(std::string_view(lines[i]).substr(0, lines[i].find(" #")), " \t");
    if (indent_of(lines[i]) > 0 || !text.ends_with(':') || text.substr(0, text.size() - 1) != key) continue;
    line = i + 1;
    lines[i].clear();
  }
  return block;
}

// Moves the lines to the left by the indentation of the first one. Errors: a line has less.
Result<void> dedent(std::vector<std::string>& lines) {
  std::size_t indent = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_empty_line(lines[i])) continue;
    if (indent == 0) indent = indent_of(lines[i]);
    if (indent_of(lines[i]) < indent)
      return bad_models_line(i + 1, "the line is indented less than the first line of its block", "indent all lines of a block alike");
    lines[i].erase(0, indent);
  }
  return {};
}

std::unexpected<Error> unknown_models_key(const ConfigEntry& entry, const std::vector<std::string_view>& known) {
  if (std::ranges::find(known, entry.key) != known.end())
    return bad_models_line(entry.line, fmt::format("'{}' occurs twice, or has its value in the same line", entry.key), std::string(kForm));
  const auto nearest = nearest_name(entry.key, known);
  return bad_models_line(entry.line, fmt::format("'{}' is not a key here", entry.key),
                         nearest ? fmt::format("did you mean '{}'?", *nearest) : fmt::format("use {}", fmt::join(known, ", ")));
}

Result<std::string> one_value(const ConfigEntry& entry) {
  if (entry.is_list) return bad_models_line(entry.line, fmt::format("{}: is a list", entry.key), "give one value");
  return entry.values.front();
}

Result<void> read_count(const ConfigEntry& entry, std::optional<std::uint32_t>& count) {
  const auto text = one_value(entry);
  if (!text) return std::unexpected(text.error());
  std::uint32_t number = 0;
  const auto read = std::from_chars(text->data(), text->data() + text->size(), number);
  if (read.ec != std::errc() || read.ptr != text->data() + text->size())
    return bad_models_line(entry.line, fmt::format("{}: '{}' is not a whole number", entry.key, text->substr(0, 100)), "write digits only");
  count = number;
  return {};
}

Result<void> read_limit(const ConfigEntry& entry, ModelsLimits& limits) {
  if (entry.key == "max-loaded") return read_count(entry, limits.max_loaded);
  if (entry.key == "idle-seconds") return read_count(entry, limits.idle_s);
  if (entry.key == "wait-seconds") return read_count(entry, limits.wait_s);
  if (entry.key == "max-waiting") return read_count(entry, limits.max_waiting);
  if (entry.key != "memory")
    return unknown_models_key(entry, {"models", "max-loaded", "memory", "idle-seconds", "wait-seconds", "max-waiting"});
  const auto text = one_value(entry);
  if (!text) return std::unexpected(text.error());
  const auto bytes = *text == "auto" ? Result<std::uint64_t>(0) : parse_bytes(*text);
  if (!bytes) return bad_models_line(entry.line, fmt::format("memory: {}", bytes.error().message), bytes.error().remedy);
  limits.memory_bytes = *bytes;
  return {};
}

// Reads one item. `lines` has only its lines, with the dash replaced by a blank.
Result<ListedModel> read_model(std::vector<std::string> lines, std::size_t first_line) {
  ListedModel model{.name = {}, .model = {}, .aliases = {}, .flags = {}, .line = first_line};
  if (const auto moved = dedent(lines); !moved) return std::unexpected(moved.error());
  std::size_t flags_line = 0;
  std::vector<std::string> flags = cut_block(lines, "flags", false, flags_line);
  if (const auto moved = dedent(flags); !moved) return std::unexpected(moved.error());
  auto entries = parse_config(joined_lines(lines));
  if (!entries) return std::unexpected(entries.error());
  for (ConfigEntry& entry : *entries) {
    if (entry.key == "aliases") {
      model.aliases = std::move(entry.values);
      continue;
    }
    if (entry.key == "flags") return bad_models_line(entry.line, "flags: is no block", "write each flag in a line below 'flags:'");
    if (entry.key != "name" && entry.key != "model") return unknown_models_key(entry, {"name", "model", "aliases", "flags"});
    auto value = one_value(entry);
    if (!value) return std::unexpected(value.error());
    (entry.key == "name" ? model.name : model.model) = *std::move(value);
  }
  if (model.model.empty()) return bad_models_line(first_line, "the model has no 'model'", "add 'model: PATH' or 'model: ORG/REPO'");
  auto parsed = parse_config(joined_lines(flags));
  if (!parsed) return std::unexpected(parsed.error());
  model.flags = *std::move(parsed);
  return model;
}

// Returns the number of the part of a split model ("NAME-00002-of-00003"), and removes it from `stem`; 1: not split.
std::size_t take_part(std::string& stem) {
  constexpr std::string_view kLike = "-00001-of-00001";
  if (stem.size() <= kLike.size()) return 1;
  const std::string_view tail = std::string_view(stem).substr(stem.size() - kLike.size());
  std::size_t part = 0;
  const auto read = std::from_chars(tail.data() + 1, tail.data() + 6, part);
  if (tail.front() != '-' || tail.substr(6, 4) != "-of-" || read.ec != std::errc() || read.ptr != tail.data() + 6) return 1;
  stem.resize(stem.size() - kLike.size());
  return part;
}

struct GgufFiles {
  std::vector<std::pair<std::string, fs::path>> models;  // names and first parts
  std::vector<fs::path> encoders;
};

void add_gguf(const fs::path& path, GgufFiles& files) {
  std::string stem = path.stem().string();
  if (stem.starts_with("mmproj"))
    files.encoders.push_back(path);
  else if (take_part(stem) == 1)
    files.models.emplace_back(stem, path);
}

bool is_gguf(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().extension() == ".gguf" && entry.is_regular_file(ignored);
}

// Adds the model of a folder inside the folder of --models, if it has exactly one.
void add_folder(const fs::path& folder, std::vector<ListedModel>& models) {
  std::error_code ignored;
  const std::string name = folder.filename().string();
  if (fs::exists(folder / "config.json", ignored)) {
    models.push_back({.name = name, .model = folder.string(), .aliases = {}, .flags = {}});
    return;
  }
  GgufFiles files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (is_gguf(entry)) add_gguf(entry.path(), files);
  if (files.models.size() != 1) return;
  ListedModel model{.name = name, .model = files.models.front().second.string(), .aliases = {}, .flags = {}};
  if (files.encoders.size() == 1) model.flags.push_back({.key = "mmproj", .values = {files.encoders.front().string()}});
  models.push_back(std::move(model));
}

}  // namespace

Result<ModelsList> parse_models_file(std::string_view text) {
  ModelsList list;
  std::vector<std::string> lines = lines_of_text(text);
  std::size_t models_line = 0;
  std::vector<std::string> items = cut_block(lines, "models", true, models_line);
  auto limits = parse_config(joined_lines(lines));
  if (!limits) return std::unexpected(limits.error());
  for (const ConfigEntry& entry : *limits)
    if (const auto read = read_limit(entry, list.limits); !read) return std::unexpected(read.error());
  const auto first = std::ranges::find_if_not(items, is_empty_line);
  if (first == items.end()) return bad_models_line(std::max<std::size_t>(1, models_line), "no model is listed", std::string(kForm));
  const std::size_t indent = indent_of(*first);
  for (std::size_t i = static_cast<std::size_t>(first - items.begin()); i < items.size();) {
    if (!is_item(items[i]) || indent_of(items[i]) != indent)
      return bad_models_line(i + 1, "the line is no item of 'models'", std::string(kForm));
    std::vector<std::string> item(items.size());
    const std::size_t begin = i;
    items[i][indent] = ' ';
    do item[i] = items[i];
    while (++i < items.size() && (is_empty_line(items[i]) || indent_of(items[i]) > indent));
    auto model = read_model(std::move(item), begin + 1);
    if (!model) return std::unexpected(model.error());
    list.models.push_back(*std::move(model));
  }
  return list;
}

Result<ModelsList> list_models_folder(const std::string& folder) {
  ModelsList list;
  GgufFiles files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with('.')) continue;
    if (is_gguf(entry)) add_gguf(entry.path(), files);
    if (entry.is_directory(ignored)) add_folder(entry.path(), list.models);
  }
  if (error) return fail(ErrorCode::not_found, "", fmt::format("cannot be read: {}", error.message()), "use a readable folder");
  for (const auto& [name, path] : files.models) list.models.push_back({.name = name, .model = path.string(), .aliases = {}, .flags = {}});
  std::ranges::sort(list.models, {}, &ListedModel::name);
  if (list.models.empty())
    return fail(ErrorCode::not_found, "", "the folder has no GGUF file and no folder with a model",
                "use a folder of models, or a YAML file");
  return list;
}

Result<ModelsList> read_models(const std::string& path) {
  std::error_code ignored;
  auto text = fs::is_directory(path, ignored) ? Result<std::string>() : read_config_text(path);
  auto list = !text ? std::unexpected(text.error()) : fs::is_directory(path, ignored) ? list_models_folder(path) : parse_models_file(*text);
  if (list) return list;
  list.error().field = "--models";
  list.error().message = fmt::format("{}: {}", path, list.error().message);
  return list;
}

}  // namespace quire
