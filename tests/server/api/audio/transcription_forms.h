#pragma once
// Forms for transcriptions, read for a speech model without a server.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "server/api/audio/speech_model.h"
#include "server/api/audio/transcription_request.h"
#include "server/request/request_context.h"
#include "server/request/served_model.h"

namespace quire {

inline constexpr const char* kTranscriptionForm = "multipart/form-data; boundary=xyz";

class TranscriptionForms : public ::testing::Test {
 protected:
  TranscriptionForms() { load(true); }
  void load(bool is_multilingual) {
    engine_.set_model(speech_model(is_multilingual));
    engine_.set_max_model_len(448);
    model_ = ServedModel::create(engine_, options_).value();
    speech_ = std::make_unique<SpeechModel>(
        SpeechModel{SpeechVocabulary::find(*model_, engine_.model()).value(), engine_.model().speech, LogMel(80), 448});
  }
  static std::string part(const std::string& name, const std::string& value) {
    return "--xyz\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
  }
  Result<TranscriptionRequest> read(const std::string& parts, bool is_translation = false) {
    std::string_view file;
    body_ = parts + "--xyz--";
    return read_transcription(kTranscriptionForm, body_, is_translation, *speech_, {.model = *model_, .options = options_, .tenant = "t"},
                              file);
  }
  Result<TranscriptionRequest> with(const std::string& name, const std::string& value, bool is_translation = false) {
    return read(part("file", "f") + part(name, value), is_translation);
  }
  std::string error(const std::string& name, const std::string& value, bool is_translation = false) {
    const auto request = with(name, value, is_translation);
    return request ? "accepted" : request.error().to_string();
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<SpeechModel> speech_;
  std::string body_;
};

}  // namespace quire
