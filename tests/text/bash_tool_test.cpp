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

// The expected values come from the same expression.
TEST(BashTool, BlankLinesAndFencesAreReadAsByTheExpression) {
  struct Case {
    const char *text, *tool;
  };
  for (const Case& one : {Case{"```bash\n\nls\n```", "ls"},
                          {"```bash\n\n\n```", ""},
                          {"```bash \t\n\v\f\r\nls\n```", "ls"},
                          {"```bash\n ls\n```", "ls"},
                          {"```bash\n\tls -a\n```", "ls"},
                          {"```bash\n\n \n```", ""},
                          {"```bash\n \n \n```", ""},
                          {"```bash\nls\n``````bash\ncat\n```", ""},
                          {"```bash\nls", ""},
                          {"```bash\nls\n``", ""},
                          {"```bash```bash\nls\n```", "ls"},
                          {"```bash\n```bash\nls\n```", "```bash"},
                          {"x```bash\nls\n```y", "ls"},
                          {"```bash\nls\n\n```", "ls"},
                          {"```bash\n\n```\n```", "```"},
                          {"```bash\n```\n```", "```"},
                          {"```bashls\n```", ""},
                          {"```bash\nls\n```\n```bash ls\n```", "ls"},
                          {"```bash\nls\n```\n```bash\n```", "ls"},
                          {"```bash\n\n\n```\n```bash\nls\n```", "```"}})
    EXPECT_EQ(bash_tool(one.text), one.tool) << testing::PrintToString(one.text);
}

}  // namespace
}  // namespace quire
