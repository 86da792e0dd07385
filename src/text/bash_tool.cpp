#include "text/bash_tool.h"

#include <algorithm>

namespace quire {
namespace {

constexpr std::string_view kOpen = "```bash";
constexpr std::string_view kClose = "\n```";
constexpr std::string_view kSpace = " \t\n\v\f\r";

struct Block {
  std::string_view command;
  std::size_t end = 0;  // first byte after the closing fence
};

// Returns whether the fence at `open` begins a block. If it does, sets `block`.
bool find_block(std::string_view text, std::size_t open, Block& block) {
  const std::size_t after = open + kOpen.size();
  const std::size_t first = std::min(text.find_first_not_of(kSpace, after), text.size());
  const std::string_view space = text.substr(after, first - after);
  const std::size_t last_newline = space.rfind('\n');
  if (last_newline == std::string_view::npos) return false;
  const std::size_t begin = after + last_newline + 1;
  // The last newline of an empty block's blank lines belongs to the closing fence, so the opening line needs another newline before it.
  const bool is_empty = space.find('\n') != last_newline && text.substr(begin - 1).starts_with(kClose);
  const std::size_t close = text.find(kClose, begin);
  if (close != std::string_view::npos)
    block = {text.substr(begin, close - begin), close + kClose.size()};
  else if (is_empty)
    block = {{}, begin - 1 + kClose.size()};
  return close != std::string_view::npos || is_empty;
}

}  // namespace

std::string bash_tool(std::string_view text) {
  std::size_t num_blocks = 0;
  Block block, only;
  for (std::size_t open = text.find(kOpen); open != std::string_view::npos;) {
    const bool found = find_block(text, open, block);
    if (found) {
      only = block;
      ++num_blocks;
    }
    open = text.find(kOpen, found ? block.end : open + 1);
  }
  if (num_blocks != 1) return {};
  const std::size_t begin = std::min(only.command.find_first_not_of(kSpace), only.command.size());
  return std::string(only.command.substr(begin, only.command.find_first_of(kSpace, begin) - begin));
}

}  // namespace quire
