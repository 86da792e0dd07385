// Tests which lines of a chat in the terminal are messages, and which are commands.
#include "cli/terminal_input.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace quire {
namespace {

using Kind = TerminalInput::Kind;

// Returns the first input in `lines`; `prompts` gets the printed prompts.
TerminalInput read(const std::string& lines, std::string* prompts = nullptr) {
  std::istringstream stream(lines);
  return read_terminal_input(stream, [&](std::string_view text) {
    if (prompts != nullptr) *prompts += text;
  });
}

TEST(TerminalInput, ReadsMessagesOfOneOrSeveralLines) {
  struct MessageCase {
    std::string lines, text;
  };
  const MessageCase cases[] = {
      {"Hello\nmore", "Hello"},
      {"\n  \nHello", "Hello"},
      {"\"\"\"one\ntwo\"\"\" rest\n", "one\ntwo"},
      {"\"\"\"one\"\"\"\n", "one"},
      {"\"\"\"\n/help\n\"\"\"\n", "\n/help\n"},
      {"/usr/bin is a folder", "/usr/bin is a folder"},
      {"/ is the root", "/ is the root"},
      {"/2 of them", "/2 of them"},
  };
  for (const MessageCase& one : cases) {
    const TerminalInput input = read(one.lines);
    EXPECT_EQ(input.kind, Kind::message) << one.lines;
    EXPECT_EQ(input.text, one.text) << one.lines;
  }
  std::string prompts;
  (void)read("\n\"\"\"one\ntwo\"\"\"", &prompts);
  EXPECT_EQ(prompts, "> > ... ");
}

TEST(TerminalInput, ReadsCommands) {
  EXPECT_EQ(read("/help").kind, Kind::help);
  EXPECT_EQ(read("/clear \nHello").kind, Kind::clear);
  EXPECT_EQ(read("/bye").kind, Kind::end);
  EXPECT_EQ(read("/exit").kind, Kind::end);
  EXPECT_EQ(read("").kind, Kind::end);
  EXPECT_EQ(read("\"\"\"no end\n").kind, Kind::end);
  EXPECT_EQ(read("/claer").kind, Kind::unknown);
  EXPECT_EQ(read("/claer").text, "unknown command '/claer'; did you mean '/clear'?");
  EXPECT_EQ(read("/model x").text, "unknown command '/model'; /help lists the commands");
}

}  // namespace
}  // namespace quire
