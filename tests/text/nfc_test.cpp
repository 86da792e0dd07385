#include "text/nfc.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(Nfc, ComposesAndOrdersMarks) {
  EXPECT_EQ(normalize_nfc("e\xCC\x81"), "\xC3\xA9");
  // Cedilla goes before acute, whichever came first.
  EXPECT_EQ(normalize_nfc("c\xCC\x81\xCC\xA7"), "\xE1\xB8\x89");
  // Hangul, and a character whose normal form is another one (the ohm sign).
  EXPECT_EQ(normalize_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");
  EXPECT_EQ(normalize_nfc("\xE2\x84\xA6"), "\xCE\xA9");
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Nfc, LeavesMarksYoungerThanTheReferencesTablesWhereTheyAre) {
  // U+1AC8 (Unicode 14) and U+0330: by today's tables the second goes first.
  EXPECT_EQ(normalize_nfc(".\xE1\xAB\x88\xCC\xB0"), ".\xE1\xAB\x88\xCC\xB0");
  EXPECT_EQ(normalize_nfc("e\xCC\x81\xE1\xAB\x88"
                          "e\xCC\x81"),
            "\xC3\xA9\xE1\xAB\x88\xC3\xA9");
}

}  // namespace
}  // namespace quire
