// Tests which vocabularies have the tokens of Whisper.
#include "server/api/audio/speech_vocabulary.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api/audio/transcription_forms.h"

namespace quire {
namespace {

TEST_F(TranscriptionForms, VocabularyMustHaveWhispersTokens) {
  EXPECT_EQ(speech_->words.languages, (std::vector<std::pair<std::string, TokenId>>{{"en", kSpeechEnglish}, {"de", kSpeechGerman}}));
  EXPECT_EQ(speech_->words.language("de"), kSpeechGerman);
  EXPECT_FALSE(speech_->words.language("fr"));
  EXPECT_EQ(speech_->words.previous, kSpeechPrevious);
  EXPECT_FALSE(speech_->words.no_speech);
  EXPECT_TRUE(speech_->words.is_multilingual);
  EXPECT_FALSE(speech_->words.is_timestamp(kSpeechFirstTime - 1));
  EXPECT_TRUE(speech_->words.is_timestamp(kSpeechFirstTime));
  EXPECT_EQ(speech_->words.seconds_of(kSpeechFirstTime + 50), 1.0);
  const auto problem = [&](const ModelInfo& info) {
    const auto found = SpeechVocabulary::find(*model_, info);
    return found ? "accepted" : found.error().to_string();
  };
  ModelInfo info = speech_model();
  EXPECT_EQ(problem(info), "accepted");
  --info.vocab_size;
  EXPECT_EQ(problem(info), "model: the vocabulary of ears has no timestamp tokens; use a Whisper model");
  info = speech_model();
  info.encoder = {};
  EXPECT_EQ(problem(info), "model: ears does not support audio; use a Whisper model");
  FakeEngine text;
  const auto plain = ServedModel::create(text, {}).value();
  EXPECT_EQ(SpeechVocabulary::find(*plain, speech_model()).error().to_string(),
            "model: the vocabulary of bytes has no <|startoftranscript|>; use a Whisper model");
}

}  // namespace
}  // namespace quire
