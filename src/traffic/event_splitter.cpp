#include "traffic/event_splitter.h"

namespace quire {
namespace {

constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20U;

}  // namespace

void EventSplitter::feed(std::string_view bytes, const Take& take) {
  while (!bytes.empty() && !is_too_long_) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() + data_.size() > kMaxEventBytes) {
      is_too_long_ = true;
    } else if (end == std::string_view::npos) {
      line_ += part;
    } else if (line_.empty()) {
      take_line(part, take);
    } else {
      line_ += part;
      take_line(line_, take);
      line_.clear();
    }
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
}

void EventSplitter::finish(const Take& take) {
  if (!line_.empty()) take_line(line_, take);
  line_.clear();
  end_event(take);
}

void EventSplitter::take_line(std::string_view line, const Take& take) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) return end_event(take);
  constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField)) return;
  line.remove_prefix(kField.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

void EventSplitter::end_event(const Take& take) {
  if (has_data_) take(data_);
  data_.clear();
  has_data_ = false;
}

}  // namespace quire
