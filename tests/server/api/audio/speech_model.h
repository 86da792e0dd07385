#pragma once
// A speech model for tests: its tokens are bytes, Whisper's special tokens and timestamps.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/fake_engine.h"

namespace quire {

inline constexpr TokenId kSpeechEnd = 256, kSpeechStart = 257, kSpeechEnglish = 258, kSpeechGerman = 259, kSpeechTranslate = 260,
                         kSpeechTranscribe = 261, kSpeechPrevious = 262, kSpeechNoTimes = 263, kSpeechFirstTime = 264;

inline ModelInfo speech_model(bool is_multilingual = true) {
  ModelInfo info = byte_model();
  info.name = "ears";
  TokenizerSpec spec = *info.tokenizer;
  spec.tokens.resize(256);
  spec.types.resize(256);
  for (const char* mark : {"<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>",
                           "<|startofprev|>", "<|notimestamps|>"}) {
    spec.tokens.emplace_back(mark);
    spec.types.push_back(TokenizerSpec::TokenType::control);
  }
  spec.chat_template.clear();
  spec.eos = kSpeechEnd;
  spec.eog = {kSpeechEnd};
  info.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  info.vocab_size = kSpeechFirstTime + 1501;
  info.encoder = {.num_positions = 1500, .num_features = 80};
  info.speech = {.suppressed = {65}, .not_first = {32, kSpeechEnd}, .max_first_time = 50, .is_multilingual = is_multilingual};
  return info;
}

// Returns the timestamp token for a number of steps of 0.02 s.
inline TokenId time_token(int steps) {
  return kSpeechFirstTime + steps;
}

inline void say(std::vector<TokenId>& tokens, std::string_view text) {
  for (const TokenId token : bytes_to_tokens(text)) tokens.push_back(token);
}

}  // namespace quire
