// Replays the calls that tools/record/offload.py made to vLLM's managers. Every answer must be the same.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/offload/offload_support.h"
#include "support/recording.h"

namespace quire::test {
namespace {

std::string text(const Numbers& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", i == 0 ? "" : " ", numbers[i]);
    text += last == i ? "" : fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text.empty() ? "-" : text;
}

Numbers parse(std::istream& words) {
  Numbers numbers;
  for (std::string word; words >> word && word != "=";) {
    if (word == "-") continue;
    const std::size_t dash = word.find('-');
    const Numbers run = range(std::stoi(word), std::stoi(dash == std::string::npos ? word : word.substr(dash + 1)));
    numbers.insert(numbers.end(), run.begin(), run.end());
  }
  return numbers;
}

NumberLedger make_ledger(std::istream& words) {
  std::string policy;
  OffloadOptions options{.enable_events = true};
  words >> policy >> options.num_slots >> options.store_threshold >> options.max_tracked_keys;
  options.policy = parse_offload_policy(policy).value();
  return NumberLedger(options);
}

std::string events(NumberLedger& ledger, std::size_t most) {
  std::vector<std::string> parts;
  for (const NaiveEvent& event : ledger.events())
    if (parts.size() < most) parts.push_back((event.removed ? "-" : "+") + text(event.keys));
  return fmt::format("{}", fmt::join(parts, " | "));
}

// The target is recorded in hexadecimal so that no bit is lost. It is compared as a number.
std::string state(NumberLedger& ledger, const std::string& recorded) {
  std::vector<std::string> parts;
  for (const Numbers& list : ledger.lists()) parts.push_back(text(list));
  const std::size_t hex = recorded.find("0x");
  const std::string target = recorded.substr(hex, recorded.find(' ', hex) - hex);
  parts.push_back(std::strtod(target.c_str(), nullptr) == ledger.target() ? target : fmt::format("{:a}", ledger.target()));
  if (const ReuseFilter* filter = ledger->filter()) {
    std::vector<std::string> counts;
    for (const auto& counted : filter->snapshot()) counts.push_back(fmt::format("{}:{}", number(counted.key), counted.count));
    parts.push_back(fmt::format("{}", fmt::join(counts, " ")));
  }
  return fmt::format("{}", fmt::join(parts, " | "));
}

std::string store(NumberLedger& ledger, const Numbers& numbers) {
  const auto store = ledger.store(numbers);
  return store ? fmt::format("{} | {} | {}", text(store->keys), text(store->slots), text(store->evicted)) : "none";
}

// Returns the answer in the record's format. It is empty if a call has no answer.
std::string play(NumberLedger& ledger, const std::string& verb, const Numbers& numbers, const std::string& recorded) {
  if (verb == "lookup") return std::to_string(ledger.lookup(numbers));
  if (verb == "load") return text(ledger.load(numbers).value());
  if (verb == "store") return store(ledger, numbers);
  if (verb == "state") return state(ledger, recorded);
  if (verb == "peek" || verb == "take") {
    const std::string read = events(ledger, verb == "take" ? SIZE_MAX : static_cast<std::size_t>(numbers.at(0)));
    if (verb == "take" || read.empty() || ledger->num_events() < static_cast<std::size_t>(numbers.at(0))) ledger->clear_events();
    return read;
  }
  if (verb == "touch") {
    ledger.touch(numbers);
  } else if (verb == "loaded") {
    EXPECT_TRUE(ledger.complete_load(numbers));
  } else {
    EXPECT_TRUE(verb == "stored" || verb == "failed") << verb;
    ledger.complete_store(numbers, verb == "stored");
  }
  return "";
}

TEST(RecordedOffload, EveryCallGetsTheAnswerOfVllmsManagers) {
  std::istringstream file = open_recording("tests/golden/offload.txt.xz", "QUIRE_OFFLOAD_RECORD");
  std::optional<NumberLedger> ledger;
  std::size_t num_calls = 0;
  for (std::string line; std::getline(file, line); ++num_calls) {
    SCOPED_TRACE(fmt::format("line {}: {}", num_calls + 1, line));
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "new") {
      ledger.emplace(make_ledger(words));
      continue;
    }
    ASSERT_TRUE(ledger);
    const std::size_t equals = line.find('=');
    const std::string recorded = equals == std::string::npos ? "" : line.substr(std::min(line.size(), equals + 2));
    ASSERT_EQ(play(*ledger, verb, parse(words), recorded), recorded);
    if (verb == "state") (*ledger)->check_invariants();
  }
  EXPECT_GT(num_calls, 2000U);
}

}  // namespace
}  // namespace quire::test
