// Reads the file of --config before the command line is parsed, and inserts its flags into the arguments. CLI11 then parses and checks them
// like flags of the command line. Runs on the main thread.
#include "cli/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "base/nearest_name.h"
#include "cli/command.h"

namespace quire {
namespace {

constexpr std::size_t kMaxConfigBytes = 1 << 20;
constexpr std::string_view kBlanks = " \t";
constexpr const char* kJsonRemedy = "write an object as JSON on one line: {\"key\": \"value\"}";

std::unexpected<Error> bad_line(std::size_t line, std::string message, std::string remedy) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("line {}: {}", line, message), std::move(remedy));
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Returns whether a text after a value is only blanks and a comment.
bool is_comment(std::string_view rest) {
  return without_blanks(rest).empty() || (kBlanks.find(rest.front()) != std::string_view::npos && without_blanks(rest).front() == '#');
}

// Removes a quoted text from the front of `rest` and returns its content, or nullopt if its end is missing. `rest` begins with the quote.
std::optional<std::string> take_quoted(std::string_view& rest) {
  const char quote = rest.front();
  std::string content;
  for (std::size_t i = 1; i < rest.size(); ++i) {
    const char next = i + 1 < rest.size() ? rest[i + 1] : '\0';
    if (quote == '"' && rest[i] == '\\' && (next == '"' || next == '\\')) {
      content += rest[++i];
    } else if (quote == '\'' && rest[i] == '\'' && next == '\'') {
      content += rest[++i];
    } else if (rest[i] == quote) {
      rest.remove_prefix(i + 1);
      return content;
    } else {
      content += rest[i];
    }
  }
  return std::nullopt;
}

// Reads the value of one line, or of one list item.
Result<std::string> read_value(std::string_view text, std::size_t line) {
  std::string_view rest = without_blanks(text);
  if (rest.starts_with('"') || rest.starts_with('\'')) {
    const auto content = take_quoted(rest);
    if (!content || !is_comment(rest)) return bad_line(line, "the quoted text has no end, or more text follows it", "correct the quotes");
    return *content;
  }
  if (rest.starts_with('{')) {
    const std::size_t end = rest.find_last_of('}');
    if (end == std::string_view::npos || !is_comment(rest.substr(end + 1))) return bad_line(line, "the object has no end", kJsonRemedy);
    return std::string(rest.substr(0, end + 1));
  }
  if (!rest.empty() && std::string_view("&*!|>%@`").find(rest.front()) != std::string_view::npos)
    return bad_line(line, fmt::format("a value cannot begin with '{}'", rest.front()), "write the value in quotes");
  const std::size_t comment = std::min(rest.find(" #"), rest.find("\t#"));
  return std::string(rest.starts_with('#') ? "" : without_blanks(rest.substr(0, comment)));
}

// Reads "[a, 'b', c]".
Result<std::vector<std::string>> read_flow_list(std::string_view text, std::size_t line) {
  std::vector<std::string> values;
  for (std::string_view rest = without_blanks(text.substr(1)); !rest.starts_with(']');) {
    if (rest.starts_with('"') || rest.starts_with('\'')) {
      auto content = take_quoted(rest);
      if (!content) return bad_line(line, "a quoted text in the list has no end", "correct the quotes");
      values.push_back(*std::move(content));
    } else {
      const std::size_t end = std::min(rest.find_first_of(",]"), rest.size());
      values.emplace_back(without_blanks(rest.substr(0, end)));
      rest.remove_prefix(end);
    }
    rest = without_blanks(rest);
    if (rest.starts_with(','))
      rest = without_blanks(rest.substr(1));
    else if (!rest.starts_with(']'))
      return bad_line(line, "the list has no end", "write [first, second]");
  }
  return values;
}

class ConfigParser {
 public:
  Result<std::vector<ConfigEntry>> parse(std::string_view text) {
    for (std::size_t line = 1; !text.empty(); ++line) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view content = text.substr(0, end);
      if (content.ends_with('\r')) content.remove_suffix(1);
      if (const auto read = read_line(content, line); !read) return std::unexpected(read.error());
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (const ConfigEntry& entry : entries_)
      if (entry.values.empty() || std::ranges::any_of(entry.values, &std::string::empty))
        return bad_line(entry.line, fmt::format("'{}' has no value", entry.key), "give a value, or remove the line");
    return std::move(entries_);
  }

 private:
  Result<void> read_line(std::string_view content, std::size_t line) {
    const std::string_view text = without_blanks(content);
    if (text.empty() || text.starts_with('#') || (line == 1 && text == "---")) return {};
    if (text == "-" || text.starts_with("- ")) return read_item(text.substr(1), line);
    if (kBlanks.find(content.front()) != std::string_view::npos)
      return bad_line(line, "the line is indented, but is no item of a list", kJsonRemedy);
    return read_entry(text, line);
  }

  Result<void> read_item(std::string_view text, std::size_t line) {
    if (entries_.empty() || !entries_.back().is_list) return bad_line(line, "a list item without a key", "write 'key:' in the line before");
    auto value = read_value(text, line);
    if (!value) return std::unexpected(value.error());
    entries_.back().values.push_back(*std::move(value));
    return {};
  }

  Result<void> read_entry(std::string_view text, std::size_t line) {
    const std::size_t colon = text.find(':');
    const bool is_entry = colon != std::string_view::npos && (colon + 1 == text.size() || kBlanks.contains(text[colon + 1]));
    if (!is_entry) return bad_line(line, fmt::format("'{}' is not of the form 'flag: value'", text.substr(0, 100)), "add the colon");
    ConfigEntry entry{.key = std::string(without_blanks(text.substr(0, colon))), .values = {}, .line = line};
    if (std::ranges::find(entries_, entry.key, &ConfigEntry::key) != entries_.end())
      return bad_line(line, fmt::format("'{}' occurs twice", entry.key), "remove one of the lines");
    const std::string_view rest = without_blanks(text.substr(colon + 1));
    if (rest.starts_with('[')) {
      auto values = read_flow_list(rest, line);
      if (!values) return std::unexpected(values.error());
      entry.is_list = true;
      entry.values = *std::move(values);
    } else {
      auto value = read_value(rest, line);
      if (!value) return std::unexpected(value.error());
      entry.is_list = value->empty() && !rest.starts_with('"') && !rest.starts_with('\'');  // the next lines are its items
      if (!entry.is_list) entry.values.push_back(*std::move(value));
    }
    entries_.push_back(std::move(entry));
    return {};
  }

  std::vector<ConfigEntry> entries_;
};

std::unexpected<Error> bad_entry(const ConfigEntry& entry, std::string message, std::string remedy) {
  return bad_line(entry.line, fmt::format("{}: {}", entry.key, message), std::move(remedy));
}

std::unexpected<Error> unknown_key(const CLI::App& command, const ConfigEntry& entry) {
  std::vector<std::string_view> names{"model"};
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty()) names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  std::erase(names, entry.key);  // a flag that a file cannot set
  const auto nearest = nearest_name(entry.key, names);
  return bad_line(entry.line, fmt::format("'{}' is not a flag of quire serve", entry.key),
                  nearest ? fmt::format("did you mean '{}'?", *nearest) : "quire serve --help lists the flags");
}

// Appends the arguments of one entry.
Result<void> append_flag(const CLI::Option& option, const ConfigEntry& entry, std::vector<std::string>& arguments) {
  const bool takes_value = option.get_items_expected_max() > 0;
  if (entry.is_list && option.get_items_expected_max() <= 1) return bad_entry(entry, "the flag does not take a list", "give one value");
  if (takes_value) {
    for (const std::string& value : entry.values) arguments.push_back(fmt::format("--{}={}", entry.key, value));
    return {};
  }
  const std::string& value = entry.values.front();
  if (value != "true" && value != "false")
    return bad_entry(entry, fmt::format("'{}' is not true or false", value.substr(0, 100)), "use true or false");
  // A flag that cannot be negated is off unless it is given. It is then left out, because its presence can require other flags.
  if (value == "true" || !option.get_fnames().empty()) arguments.push_back(fmt::format("--{}={}", entry.key, value));
  return {};
}

// Inserts the flags of the file that `command` does not have yet. The model is inserted first, so that no flag takes it as a value.
Result<std::vector<std::string>> insert_flags(const CLI::App& command, const std::vector<ConfigEntry>& entries,
                                              std::vector<std::string> arguments) {
  std::vector<std::string> model, flags;
  for (const ConfigEntry& entry : entries) {
    const bool is_model = entry.key == "model";
    const CLI::Option* const option = command.get_option_no_throw(is_model ? entry.key : "--" + entry.key);
    if (option == nullptr || option == command.get_help_ptr() || entry.key == "config") return unknown_key(command, entry);
    if (option->count() > 0) continue;
    if (is_model && entry.is_list) return bad_entry(entry, "is a list", "give one value");
    if (is_model)
      model = entry.values;
    else if (const auto added = append_flag(*option, entry, flags); !added)
      return std::unexpected(added.error());
  }
  arguments.insert(std::ranges::find(arguments, "--"), flags.begin(), flags.end());
  arguments.insert(arguments.begin() + 1, model.begin(), model.end());
  return arguments;
}

}  // namespace

Result<std::string> read_config_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad())
    return fail(ErrorCode::not_found, "", "the file cannot be read, or is larger than 1 MiB", "use a YAML file");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // the byte order mark of some editors
  return text;
}

Result<void> append_config_entry(const CLI::App& command, const ConfigEntry& entry, std::vector<std::string>& arguments) {
  const CLI::Option* const option = command.get_option_no_throw("--" + entry.key);
  if (option == nullptr || option == command.get_help_ptr() || entry.key == "config") return unknown_key(command, entry);
  return append_flag(*option, entry, arguments);
}

Result<std::vector<ConfigEntry>> parse_config(std::string_view text) {
  return ConfigParser().parse(text);
}

Result<std::vector<std::string>> with_config_file(std::vector<std::string> arguments) {
  const auto names_config = [](const std::string& argument) { return argument == "--config" || argument.starts_with("--config="); };
  if (arguments.empty() || arguments.front() != "serve" || std::ranges::none_of(arguments, names_config)) return arguments;
  // A separate command finds the given flags. The values of the real command are set only once.
  CLI::App app;
  const Command serve = add_serve_command(app);
  serve.app->get_option("model")->required(false);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch&) {
    return arguments;  // the real command reports the missing value, which must not become the first flag of the file
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return arguments;  // --help
  }
  const std::vector<std::string> given = serve.app->get_option("--config")->results();
  if (given.size() != 1) return arguments;
  auto text = read_config_text(given.front());
  auto entries = text ? parse_config(*text) : std::unexpected(text.error());
  auto inserted = entries ? insert_flags(*serve.app, *entries, std::move(arguments)) : std::unexpected(entries.error());
  if (inserted) return inserted;
  inserted.error().field = "--config";
  inserted.error().message = fmt::format("{}: {}", given.front(), inserted.error().message);
  return inserted;
}

}  // namespace quire
