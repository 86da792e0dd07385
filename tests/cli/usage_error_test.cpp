// Tests the texts of errors in the arguments of the command line.
#include "cli/flags/usage_error.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "cli/flags/option_flags.h"

namespace quire {
namespace {

struct SampleOptions {
  std::uint16_t port = 8000;
  std::uint32_t seats = 1;
  double share = 0.0;
};

constexpr auto kSampleOptions = std::to_array<Option<SampleOptions>>({
    {member<&SampleOptions::port>, {.flag = "--port", .help = "Port"}},
    {member<&SampleOptions::seats>, {.flag = "--num-seats", .range = OptionRange{1, 64}, .help = "Seats"}},
    {member<&SampleOptions::share>, {.flag = "--share", .kind = OptionKind::share, .range = OptionRange{0, 1}, .help = "Share"}},
});

// Returns the error of a program with the commands `serve MODEL`, `bench` and `cache verify`; empty: there is no error.
std::string error_of(const std::vector<std::string>& arguments) {
  CLI::App app("", "quire");
  app.require_subcommand(1);
  CLI::App* const serve = app.add_subcommand("serve", "");
  std::string model, hidden;
  SampleOptions options;
  serve->add_option("model", model)->required()->type_name("MODEL");
  add_option_flags(*serve, kSampleOptions, options);
  serve->add_option("--posts", hidden)->group("");
  std::uint32_t rounds = 1;
  double pace = 1.0;
  CLI::App* const bench = app.add_subcommand("bench", "");
  bench->add_option("--rounds", rounds);
  bench->add_option("--pace", pace);
  CLI::App* const cache = app.add_subcommand("cache", "");
  cache->add_subcommand("verify", "");
  cache->require_subcommand(1);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, arguments);
  }
  return "";
}

TEST(UsageError, SuggestsTheNearestCommand) {
  EXPECT_EQ(error_of({"sreve", "model.gguf"}), "unknown command 'sreve'; did you mean 'serve'? See quire --help");
  EXPECT_EQ(error_of({"fly"}), "unknown command 'fly'; see quire --help");
  EXPECT_EQ(error_of({"cache", "verfy"}), "unknown command 'verfy'; did you mean 'verify'? See quire cache --help");
  EXPECT_EQ(error_of({"cache"}), "the command of 'quire cache' is missing. Use verify; see quire cache --help");
}

TEST(UsageError, SuggestsTheNearestFlagOfTheCommand) {
  EXPECT_EQ(error_of({"serve", "model.gguf", "--portt", "1"}), "unknown flag --portt; did you mean --port? See quire serve --help");
  EXPECT_EQ(error_of({"serve", "--portt=1"}), "unknown flag --portt; did you mean --port? See quire serve --help")
      << "the missing model is not the first problem";
  EXPECT_EQ(error_of({"bench", "--port", "1"}), "unknown flag --port; see quire bench --help");
  EXPECT_EQ(error_of({"serve", "model.gguf", "--post", "1"}), "unknown flag --post; did you mean --port? See quire serve --help")
      << "a flag that --help does not show is not suggested";
  EXPECT_EQ(error_of({"--port", "1"}), "unknown flag --port; see quire --help");
  EXPECT_EQ(error_of({"serve", "a.gguf", "b.gguf"}), "unexpected argument 'b.gguf'; see quire serve --help");
}

TEST(UsageError, NamesTheFlagTheValueAndTheRange) {
  EXPECT_EQ(error_of({"serve", "m", "--port", "99999"}), "--port: '99999' is not a whole number from 0 to 65535; see quire serve --help");
  EXPECT_EQ(error_of({"serve", "m", "--port", "http"}), "--port: 'http' is not a whole number from 0 to 65535; see quire serve --help");
  EXPECT_EQ(error_of({"serve", "m", "--num-seats=-1"}), "--num-seats: '-1' is not a whole number from 1 to 64; see quire serve --help");
  EXPECT_EQ(error_of({"serve", "m", "--share", "half"}), "--share: 'half' is not a number from 0 to 1; see quire serve --help");
  EXPECT_EQ(error_of({"bench", "--pace", "2", "--rounds", "two"}), "--rounds: 'two' is not a whole number; see quire bench --help");
  EXPECT_EQ(error_of({"bench", "--rounds", "2", "--pace", "two"}), "--pace: 'two' is not a number; see quire bench --help");
  EXPECT_EQ(error_of({"serve", "m", "--port", "80", "--num-seats", "2", "--share", "0.5"}), "");
}

TEST(UsageError, NamesTheArgumentThatIsMissingOrGivenTwice) {
  EXPECT_EQ(error_of({"serve"}), "MODEL is missing; see quire serve --help");
  EXPECT_EQ(error_of({"serve", "m", "--port"}), "--port: the value is missing; see quire serve --help");
  EXPECT_EQ(error_of({"serve", "m", "--port", "1", "--port", "2"}), "--port: has 2 values (1, 2). Give one; see quire serve --help");
}

}  // namespace
}  // namespace quire
