#pragma once
// A server with a speech model, and forms with recordings of silence.
#include <string>
#include <utility>
#include <vector>

#include "audio/audio_reader.h"
#include "audio/wave_file.h"
#include "server/api/audio/speech_model.h"
#include "server/running_server.h"

namespace quire {

class TranscriptionTest : public RunningServer {
 protected:
  void SetUp() override {
    if (!check_audio_reader()) GTEST_SKIP() << "this build does not read audio";
    engine.set_model(speech_model());
    engine.set_max_model_len(448);
  }

  static std::string field(const std::string& name, const std::string& value) {
    return "--xyz\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
  }
  static std::string recording(double seconds) {
    return wave_file(std::vector<float>(static_cast<std::size_t>(seconds * 16'000)), 16'000, 1);
  }
  static void send_form_on(HttpClient& client, const std::string& parts, const std::string& path = "/v1/audio/transcriptions") {
    const std::string body = parts + "--xyz--\r\n";
    client.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=xyz\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  ClientResponse send_form(const std::string& parts, const std::string& path = "/v1/audio/transcriptions") {
    HttpClient client(port);
    send_form_on(client, parts, path);
    return client.receive();
  }
  ClientResponse transcribe(double seconds, const std::string& more = {}, const std::string& path = "/v1/audio/transcriptions") {
    return send_form(field("file", recording(seconds)) + field("model", "ears") + more, path);
  }
  // Each window is one segment of 30 s.
  void generate_segments() {
    engine.speak_with([](const EngineRequest&) {
      std::vector<TokenId> tokens = {time_token(0)};
      say(tokens, " One.");
      tokens.push_back(time_token(1500));
      return tokens;
    });
  }
  void generate(std::string text) {
    engine.speak_with([text = std::move(text)](const EngineRequest& request) {
      std::vector<TokenId> tokens;
      for (const auto& choice : request.sampling.timestamps.begins) tokens.push_back(choice.back());
      say(tokens, text);
      tokens.push_back(kSpeechEnd);
      return tokens;
    });
  }
};

}  // namespace quire
