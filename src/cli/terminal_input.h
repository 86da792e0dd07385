#pragma once
// Reads what a user types into the chat of `quire run`: messages of one or several lines, and commands.
#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>

namespace quire {

struct TerminalInput {
  enum class Kind : std::uint8_t { message, help, clear, end, unknown };
  Kind kind = Kind::end;
  std::string text;  // of a message; for `unknown`, the error
};

// Returns the next input. `prompt` is called before each line, with the text to print. The end of the input is the command `end`. Empty
// lines are skipped. A message between """ and """ may have several lines and may begin with a slash. A word of a slash and letters at the
// beginning of another line is a command.
TerminalInput read_terminal_input(std::istream& input, const std::function<void(std::string_view)>& prompt);

// The text of /help.
inline constexpr const char* kTerminalHelp =
    "/clear         forget the conversation\n"
    "/bye, /exit    end (or Ctrl-D)\n"
    "/help          this text\n"
    "\"\"\"            begins and ends a message of several lines\n";

}  // namespace quire
