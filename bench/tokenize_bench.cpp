// Runs every pre-tokenizer on its hardest texts, in growing sizes: tokenize_bench FOLDER. Clients choose the texts, so the time per byte
// must not grow with the length of a text. If the time per byte grows by more than 1.5 from the smallest to the largest size, the exit
// status is 1. FOLDER must have ggml-vocab-gpt-2.gguf, ggml-vocab-qwen2.gguf (which normalizes) and ggml-vocab-llama-spm.gguf.
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "format/tokenizer_file.h"
#include "quire/text/tokenizer.h"

namespace {

using quire::Tokenizer;
using quire::TokenizerSpec;

constexpr std::array<std::size_t, 4> kSizes{16 << 10, 64 << 10, 256 << 10, 1 << 20};
constexpr double kMaxGrowth = 1.5;
// A round with too much growth is repeated, because other programs, or other machines on the same host, may have disturbed it. Such
// disturbances last for seconds, so the benchmark first waits for kPause.
constexpr int kMaxRounds = 12;
constexpr std::chrono::milliseconds kPause{500};

// One name per expression of src/text/pre_tokenizer.cpp.
constexpr std::array kPreTokenizers{"gpt-2", "smollm",      "llama3",       "qwen2",          "qwen35", "tekken", "gpt-4o",
                                    "bloom", "deepseek-v3", "deepseek-llm", "deepseek-coder", "falcon", "viking", "default"};

struct Input {
  const char* name;
  std::function<std::string(std::size_t size, unsigned seed)> make;
};

std::string repeat(std::string_view unit, std::size_t size) {
  std::string text;
  while (text.size() + unit.size() <= size) text += unit;
  return text;
}

std::string pick(const std::vector<std::string_view>& parts, std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) text += parts[random() % parts.size()];
  return text;
}

Input repeated(const char* name, const char* unit, const char* end = "") {
  return {name, [unit, end](std::size_t size, unsigned) { return repeat(unit, size) + end; }};
}

Input mixed(const char* name, std::vector<std::string_view> parts) {
  return {name, [parts = std::move(parts)](std::size_t size, unsigned seed) { return pick(parts, size, seed); }};
}

std::string two_kinds_of_marks(std::size_t size, unsigned /*seed*/) {
  return "a" + repeat("\u0301", size / 2) + repeat("\u0323", size / 2);
}

std::vector<Input> inputs() {
  return {
      repeated("spaces", " "),
      repeated("spaces, digit", " ", "1"),
      repeated("spaces, letter", " ", "a"),
      repeated("no-break spaces", "\u00A0", "1"),
      repeated("tabs and spaces", "\t ", "1"),
      repeated("newlines", "\n"),
      repeated("newlines, digit", "\n", "1"),
      repeated("CR LF", "\r\n", "!"),
      repeated("spaces and newlines", "  \n", " 1"),
      repeated("one letter", "a"),
      repeated("one capital", "A"),
      repeated("capitals, small letters", "Aa"),
      mixed("letters", {"a", "b", "c", "d", "e", "f", "g", "h", "i", "k", "l", "m", "n", "o", "p", "r", "s", "t", "u", "v", "w"}),
      repeated("digits", "1"),
      repeated("apostrophes", "'"),
      repeated("apostrophe, letter", "'s"),
      repeated("punctuation", "!"),
      mixed("all punctuation", {"!", "?", "(", ")", "[", "{", "<", "=", "+", "-", "*", "/", "\\", "$", "#", "@", "~", "`", ",", "."}),
      repeated("punctuation, newlines", "!\n"),
      {"marks of two kinds", two_kinds_of_marks},
      repeated("letter, mark", "a\u0301"),
      repeated("one ideograph", "\u4F60"),
      mixed("ideographs", {"\u4F60", "\u597D", "\u4E16", "\u754C", "\u7684", "\u4E00", "\u662F", "\u4E0D", "\u4E86", "\u4EBA"}),
      repeated("Hangul", "\u1112\u1161\u11AB"),
      repeated("emoji", "\U0001F600"),
      repeated("joined emoji", "\U0001F468\u200D\U0001F469\u200D"),
      repeated("broken UTF-8", "\xF0\x9F"),
      repeated("angle brackets", "<|"),
      mixed("prose",
            {"the ", "quick ", "brown ", "fox ", "jumps ", "over ", "12 ", "lazy ", "dogs", ", ", ".\n", "It's ", "\u00E9t\u00E9 "}),
  };
}

double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Encodes texts of `size` until their total is the largest size. Returns nanoseconds of CPU time per byte; negative if encoding failed.
double measure(const Tokenizer& tokenizer, const Input& input, std::size_t size) {
  double spent = 0;
  std::size_t bytes = 0;
  for (unsigned seed = 0; seed < kSizes.back() / size; ++seed) {
    const std::string text = input.make(size, seed);
    const double begin = cpu_ns();
    if (!tokenizer.encode(text)) return -1;
    spent += cpu_ns() - begin;
    bytes += text.size();
  }
  return spent / static_cast<double>(bytes);
}

// Prints one row. Returns whether the growth is bounded.
bool run(const char* name, const Tokenizer& tokenizer, const Input& input) {
  std::array<double, kSizes.size()> best;
  best.fill(std::numeric_limits<double>::infinity());
  double growth = 0;
  for (int round = 0; round < kMaxRounds && (round == 0 || growth > kMaxGrowth); ++round) {
    if (round > 0) std::this_thread::sleep_for(kPause);
    for (std::size_t i = 0; i < kSizes.size(); ++i) best[i] = std::min(best[i], measure(tokenizer, input, kSizes[i]));
    growth = best.back() / best.front();
  }
  const bool failed = std::ranges::min(best) < 0;
  fmt::print("{:<16} {:<24} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>7.2f}{}\n", name, input.name, best[0], best[1], best[2], best[3], growth,
             failed                ? "  FAILED"
             : growth > kMaxGrowth ? "  GROWS"
                                   : "");
  return !failed && growth <= kMaxGrowth;
}

quire::Result<TokenizerSpec> load(const std::string& path) {
  const auto file = quire::GgufFile::open(path);
  if (!file) return std::unexpected(file.error());
  return quire::tokenizer_from_gguf(*file);
}

// Runs every input through one tokenizer. Returns the number of inputs whose growth is too large; nullopt if the tokenizer could not be
// created.
std::optional<std::size_t> count_growing(const char* name, const quire::Result<TokenizerSpec>& spec) {
  auto tokenizer = spec ? Tokenizer::create(*spec) : std::unexpected(spec.error());
  if (!tokenizer) {
    fmt::print(stderr, "{}: {}\n", name, tokenizer.error().to_string());
    return std::nullopt;
  }
  std::size_t growing = 0;
  for (const Input& input : inputs()) growing += run(name, **tokenizer, input) ? 0 : 1;
  return growing;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: tokenize_bench FOLDER [PRE_TOKENIZER]\n");
    return 2;
  }
  // Keeps freed memory in the process. New memory pages cost the same per byte at any size, but only the largest texts would need them.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const std::string folder = argv[1];
  const std::string_view only = argc > 2 ? argv[2] : "";
  fmt::print("ns of processor time per byte\n{:<16} {:<24} {:>8} {:>8} {:>8} {:>8} {:>7}\n", "pre-tokenizer", "text", "16 KB", "64 KB",
             "256 KB", "1 MB", "growth");
  std::size_t growing = 0;
  const auto add = [&](const char* name, const quire::Result<TokenizerSpec>& spec) {
    if (!only.empty() && only != name) return true;
    const auto count = count_growing(name, spec);
    growing += count.value_or(0);
    return count.has_value();
  };
  auto spec = load(folder + "/ggml-vocab-gpt-2.gguf");
  for (const char* name : kPreTokenizers) {
    if (spec) spec->pre = name;
    if (!add(name, spec)) return 2;
  }
  if (!add("qwen2, NFC", load(folder + "/ggml-vocab-qwen2.gguf"))) return 2;
  if (!add("sentencepiece", load(folder + "/ggml-vocab-llama-spm.gguf"))) return 2;
  fmt::print("{} rows grow by more than {}\n", growing, kMaxGrowth);
  return growing == 0 ? 0 : 1;
}
