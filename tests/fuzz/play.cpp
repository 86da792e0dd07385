// Plays inputs for one LLVMFuzzerTestOneInput in a build without libFuzzer, which `./dev test` makes anyway: the corpus, then random
// changes of it. NAME_fuzz [--inputs=N] [--seconds=S] [--seed=S] [--first=K] [FOLDER] plays at most 20,000 inputs unless one of the first
// two options is given. Change K depends only on the seed and K, so `--first=K --inputs=1` plays it again alone. An abort prints these
// options. This program finds failed checks, but no out-of-bounds reads: libFuzzer with ASan does, which `./dev test --ci` (in turn) and
// `--all` run. Fails if fewer than 100 inputs were played, or if the inputs never reached the fuzzer's subject (subject.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "fuzz/subject.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::uint64_t kLeast = 100;        // inputs; fewer prove nothing
constexpr std::size_t kMaxBytes = 64 << 10;  // of an input

using Input = std::string;

struct Running {
  std::uint64_t seed = 1, number = 0;
};

Running running;  // for the message of a check that breaks, which ends the program

extern "C" void report_input(int /*signal*/) {
  fmt::print(stderr, "at this input: --seed={} --first={} --inputs=1\n", running.seed, running.number);
}

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Input> corpus;
  corpus.reserve(paths.size());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Changes {
 public:
  Changes(const std::vector<Input>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  Input next() {
    Input input = corpus_.empty() || below(16) == 0 ? noise() : corpus_[below(corpus_.size())];
    for (std::size_t i = below(8) + 1; i > 0; --i) change(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.next() % bound); }
  char byte() { return static_cast<char>(random_.next()); }

  Input noise() {
    Input input(below(256), '\0');
    for (char& c : input) c = byte();
    return input;
  }

  // Returns a part of `input` as (begin, size).
  std::pair<std::size_t, std::size_t> part(const Input& input) {
    const std::size_t begin = below(input.size() + 1);
    return {begin, below(std::min<std::size_t>(input.size() - begin, 64) + 1)};
  }

  void change(Input& input) {
    // Words that readers often handle wrong: sizes at their limits, and terminators of texts.
    static constexpr std::string_view kWords[] = {{"\0\0\0\0", 4},
                                                  {"\xFF\xFF\xFF\xFF", 4},
                                                  {"\0\0\0\x80", 4},
                                                  {"\xFF\xFF\xFF\x7F", 4},
                                                  {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8},
                                                  "-1",
                                                  "18446744073709551616",
                                                  "1e999",
                                                  "\"",
                                                  "{",
                                                  "[",
                                                  "]",
                                                  "\\u0000",
                                                  "\xED\xA0\x80",
                                                  "\r\n",
                                                  "null"};
    const auto [begin, size] = part(input);
    switch (below(6)) {
      case 0:
        if (begin < input.size()) input[begin] = byte();
        break;
      case 1:
        if (begin < input.size()) input[begin] = static_cast<char>(input[begin] ^ (1 << below(8)));
        break;
      case 2:
        input.erase(begin, size);
        break;
      case 3:
        input.insert(below(input.size() + 1), input.substr(begin, size));
        break;
      case 4:
        input.insert(begin, kWords[below(std::size(kWords))]);
        break;
      default:
        if (corpus_.empty()) break;
        const Input& other = corpus_[below(corpus_.size())];
        input = input.substr(0, begin) + other.substr(below(other.size() + 1));
    }
  }

  const std::vector<Input>& corpus_;
  quire::Random random_;
};

// --name=value
std::pair<std::string_view, std::uint64_t> halves(std::string_view argument) {
  const std::size_t end = std::min(argument.find('='), argument.size());
  return {argument.substr(0, end), std::strtoull(argument.data() + std::min(end + 1, argument.size()), nullptr, 10)};
}

void play(const Input& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint32_t>::max();
  std::optional<std::uint64_t> num_inputs, seconds;
  std::uint64_t first = 0;
  std::vector<Input> corpus;
  for (const std::string_view argument : std::span(argv, argv + argc).subspan(1)) {
    const auto [name, value] = halves(argument);
    if (name == "--inputs")
      num_inputs = value;
    else if (name == "--seconds")
      seconds = value;
    else if (name == "--seed")
      running.seed = value;
    else if (name == "--first")
      first = value;
    else
      corpus = read_corpus(argument);
  }
  std::signal(SIGABRT, report_input);
  const std::uint64_t most = num_inputs.value_or(seconds ? kUnbounded : 20'000);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds.value_or(kUnbounded));
  std::uint64_t played = 0;
  // The corpus comes first: its inputs have the numbers below its size.
  for (running.number = first; played < most && std::chrono::steady_clock::now() < end; ++running.number, ++played)
    if (running.number < corpus.size())
      play(corpus[running.number]);
    else
      play(Changes(corpus, running.seed * 0x9E3779B97F4A7C15 + running.number).next());
  fmt::print("{} inputs from seed {}\n", played, running.seed);
  if (played >= kLeast && !quire::test::FuzzSubject::all_reached()) {
    fmt::print(stderr, "a subject of this fuzzer was never reached: its corpus or its inputs are wrong\n");
    return EXIT_FAILURE;
  }
  return played >= std::min(most, kLeast) ? EXIT_SUCCESS : EXIT_FAILURE;
}
