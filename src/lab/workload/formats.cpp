// Parses the formats with one request per line. read_workload.cpp calls it for each line, on the caller's thread. The files are not
// trusted: counts and times are checked against bounds, and each error names the line.
#include "lab/workload/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace quire {
namespace {

constexpr std::uint32_t kMooncakeTokens = 512;

std::uint32_t token_count(const JsonLine& line, std::string_view name) {
  return static_cast<std::uint32_t>(line.count(name, 1, kMostTokens));
}

WorkloadRequest& append(Workload& workload) {
  WorkloadRequest& request = workload.requests.emplace_back();
  request.session = static_cast<std::uint32_t>(workload.requests.size() - 1);
  request.ends_session = true;
  return request;
}

// Returns the number of days since 1970-01-01 (Howard Hinnant's days_from_civil).
std::int64_t days(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400, of_era = year - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// Parses the whole text as a number in [low, high]. Returns false if the text is not a number in this range.
template <class Number>
bool read_number(std::string_view text, Number& value, Number low, Number high) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
}

// Parses a time such as "2023-11-16 18:15:46.6805900". Returns false if the text has another form.
bool read_time(std::string_view text, double& seconds) {
  std::int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0.0;
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' || text[16] != ':')
    return false;
  if (!read_number<std::int64_t>(text.substr(0, 4), year, 1970, 9999) || !read_number<std::int64_t>(text.substr(5, 2), month, 1, 12) ||
      !read_number<std::int64_t>(text.substr(8, 2), day, 1, 31) || !read_number<std::int64_t>(text.substr(11, 2), hour, 0, 23) ||
      !read_number<std::int64_t>(text.substr(14, 2), minute, 0, 59) || !read_number(text.substr(17), second, 0.0, 61.0))
    return false;
  seconds = static_cast<double>(((days(year, month, day) * 24 + hour) * 60 + minute) * 60) + second;
  return true;
}

}  // namespace

WorkloadFormat format_of(std::string_view line) {
  if (line.starts_with("TIMESTAMP,")) return WorkloadFormat::azure;
  if (!line.starts_with("{")) return WorkloadFormat::unknown;
  // Each key occurs in only one format. Searching for the key avoids parsing the line twice.
  constexpr std::array<std::pair<std::string_view, WorkloadFormat>, 5> kMarks = {{{"\"queued_ts\"", WorkloadFormat::vllm_run},
                                                                                  {"\"input_tok_ids\"", WorkloadFormat::tokens},
                                                                                  {"\"hash_runs\"", WorkloadFormat::sessions},
                                                                                  {"\"hash_ids\"", WorkloadFormat::mooncake},
                                                                                  {"\"messages\"", WorkloadFormat::mini_swe}}};
  for (const auto& [mark, format] : kMarks)
    if (line.contains(mark)) return format;
  return WorkloadFormat::unknown;
}

void take_mooncake(const JsonLine& line, Workload& workload) {
  WorkloadRequest& request = append(workload);
  request.start_s = line.number("timestamp", 0.0) / 1e3;
  request.prompt_tokens = token_count(line, "input_length");
  request.output_tokens = token_count(line, "output_length");
  workload.id_tokens = kMooncakeTokens;
  request.first_run = static_cast<std::uint32_t>(workload.runs.size());
  const boost::json::array* const ids = line.array("hash_ids");
  if (ids == nullptr) return;
  if (ids->size() != (request.prompt_tokens + kMooncakeTokens - 1) / kMooncakeTokens)
    line.set_error("hash_ids", fmt::format("has {} ids for {} tokens, but needs one per {} tokens", ids->size(), request.prompt_tokens,
                                           kMooncakeTokens));
  for (const boost::json::value& value : *ids) {
    const std::optional<std::uint64_t> id = whole_number(value);
    if (!id) return line.set_error("hash_ids", "has an entry that is not a whole number");
    if (request.num_runs > 0 && workload.runs.back().first + workload.runs.back().count == *id) {
      ++workload.runs.back().count;
    } else {
      workload.runs.push_back({*id, 1});
      ++request.num_runs;
    }
  }
}

void take_tokens(const JsonLine& line, Workload& workload) {
  WorkloadRequest& request = append(workload);
  request.start_s = line.number("arrival_time_ns", 0.0) / 1e9;
  request.prompt_tokens = token_count(line, "input_toks");
  request.output_tokens = token_count(line, "output_toks");
  request.has_tokens = true;
  request.first_token = workload.tokens.size();
  const boost::json::array* const ids = line.array("input_tok_ids");
  if (ids == nullptr) return;
  if (ids->size() != request.prompt_tokens)
    line.set_error("input_tok_ids", fmt::format("has {} ids, but `input_toks` is {}", ids->size(), request.prompt_tokens));
  for (const boost::json::value& value : *ids) {
    const std::optional<std::uint64_t> id = whole_number(value);
    if (!id || *id > INT32_MAX) return line.set_error("input_tok_ids", "has an entry that is not a token id");
    workload.tokens.push_back(static_cast<TokenId>(*id));
  }
}

void take_vllm_run(const JsonLine& line, Workload& workload) {
  WorkloadRequest& request = append(workload);
  request.start_s = line.number("arrival_time", 0.0);
  request.prompt_tokens = token_count(line, "input_toks");
  request.output_tokens = token_count(line, "output_toks");
}

std::string take_azure(std::string_view line, Workload& workload) {
  if (const auto commas = std::ranges::count(line, ','); commas != 2) return fmt::format("has {} columns instead of 3", commas + 1);
  const std::size_t first = line.find(','), second = line.find(',', first + 1);
  double seconds = 0.0;
  std::uint32_t input = 0, output = 0;
  constexpr auto kMost = static_cast<std::uint32_t>(kMostTokens);
  if (!read_time(line.substr(0, first), seconds)) return "does not begin with a time such as 2023-11-16 18:15:46.6805900";
  if (!read_number(line.substr(first + 1, second - first - 1), input, 1U, kMost) ||
      !read_number(line.substr(second + 1), output, 1U, kMost))
    return fmt::format("has a number of tokens outside 1 to {}", kMost);
  WorkloadRequest& request = append(workload);
  request.start_s = seconds;
  request.prompt_tokens = input;
  request.output_tokens = output;
  return {};
}

}  // namespace quire
