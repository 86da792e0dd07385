#include "text/stop_strings.h"

#include <algorithm>

namespace quire {
namespace {

// Returns a list whose element i is the length of the longest proper border of the first i bytes (Knuth, Morris, Pratt).
std::vector<std::uint32_t> failure_function(std::string_view text) {
  std::vector<std::uint32_t> failure(text.size() + 1, 0);
  std::uint32_t border = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) border = failure[border];
    if (text[i] == text[border]) ++border;
    failure[i + 1] = border;
  }
  return failure;
}

}  // namespace

StopStrings::StopStrings(std::span<const std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (const std::string& stop : stops) patterns_.push_back({stop, failure_function(stop), 0});
}

std::size_t StopStrings::longest_state() const {
  std::size_t longest = 0;
  for (const Pattern& pattern : patterns_) longest = std::max<std::size_t>(longest, pattern.state);
  return longest;
}

// Returns the index of the longest pattern that this byte completes.
std::optional<std::uint32_t> StopStrings::advance(char byte) {
  std::optional<std::uint32_t> matched;
  for (std::uint32_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    if (pattern.text.empty()) continue;
    while (pattern.state > 0 && pattern.text[pattern.state] != byte) pattern.state = pattern.failure[pattern.state];
    if (pattern.text[pattern.state] == byte) ++pattern.state;
    if (pattern.state < pattern.text.size()) continue;
    if (!matched || pattern.text.size() > patterns_[*matched].text.size()) matched = i;
  }
  return matched;
}

StopStrings::Output StopStrings::push(std::string_view text) {
  out_.clear();
  if (stopped_) return {};
  for (const char byte : text) {
    held_ += byte;
    const auto matched = advance(byte);
    if (!matched) continue;
    stopped_ = true;
    if (!include_stop_) held_.resize(held_.size() - patterns_[*matched].text.size());
    out_.swap(held_);
    held_.clear();
    return {out_, matched};
  }
  const std::size_t num_ready = held_.size() - longest_state();
  out_.assign(held_, 0, num_ready);
  held_.erase(0, num_ready);
  return {out_, std::nullopt};
}

std::string_view StopStrings::flush() {
  out_.clear();
  if (!stopped_) out_.swap(held_);
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.state = 0;
  return out_;
}

}  // namespace quire
