#include "text/bash_tool.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// The expected values come from Python's re.findall(r"```bash\s*
// (.*?)
// ```", text, re.DOTALL) and split().
TEST(BashTool, IsTheFirstWordOfTheOnlyBlock) {
  EXPECT_EQ(bash_tool("I look.\n```bash\nls -la\n```\nDone."), "ls");
  EXPECT_EQ(bash_tool("```bash  \n\n  cat a.txt |\n  head\n```"), "cat");
  EXPECT_EQ(bash_tool("```bash\ngrep x\n```bash\nls\n```"), "grep") << "the second fence closes the first";
}

TEST(BashTool, IsNoneWithoutOrWithSeveralBlocks) {
  for (const char* text : {"", "no fence", "```python\nls\n```", "```bash ls\n```", "```bash\nls", "```bash\nls```", "```bash\n\n```",
                           "```bash\n```", "```bash\nls\n```\n```bash\nls\n```", "```bash\n\n```\n```bash\nls\n```x```bash\nls\n```"}) {
    EXPECT_EQ(bash_tool(text), "") << text;
  }
}

}  // namespace
}  // namespace quire
