#include "server/api/audio/speech_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/request/served_model.h"

namespace quire {
namespace {

// The languages of openai-whisper, in the order of their tokens.
constexpr std::string_view kLanguages =
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy "
    "sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo "
    "uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue ";

constexpr std::uint32_t kMultilingualSize = 51865;  // least size of a multilingual vocabulary

}  // namespace

Result<SpeechVocabulary> SpeechVocabulary::find(const ServedModel& model, const ModelInfo& info) {
  const auto refuse = [&](std::string problem) { return fail(ErrorCode::unsupported, "model", std::move(problem), "use a Whisper model"); };
  if (!info.has_encoder()) return refuse(fmt::format("{} does not support audio", model.name()));
  SpeechVocabulary found;
  const std::array named{std::pair("<|startoftranscript|>", &found.start), std::pair("<|endoftext|>", &found.end),
                         std::pair("<|transcribe|>", &found.transcribe), std::pair("<|translate|>", &found.translate),
                         std::pair("<|notimestamps|>", &found.no_timestamps)};
  for (const auto& [text, token] : named) {
    const auto id = model.control_token(text);
    if (!id) return refuse(fmt::format("the vocabulary of {} has no {}", model.name(), text));
    *token = *id;
  }
  found.first_time = found.no_timestamps + 1;
  if (std::uint64_t{info.vocab_size} <= static_cast<std::uint64_t>(found.first_time) + kLastTimestamp || found.end >= found.first_time)
    return refuse(fmt::format("the vocabulary of {} has no timestamp tokens", model.name()));
  found.previous = model.control_token("<|startofprev|>");
  // OpenAI renamed the token <|nocaptions|> to <|nospeech|>.
  for (const char* name : {"<|nospeech|>", "<|nocaptions|>"})
    if (!found.no_speech) found.no_speech = model.control_token(name);
  found.is_multilingual = info.speech.is_multilingual.value_or(info.vocab_size >= kMultilingualSize);
  for (std::string_view rest = kLanguages; found.is_multilingual && !rest.empty();) {
    const std::string code(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(code.size() + 1);
    if (const auto id = model.control_token(fmt::format("<|{}|>", code))) found.languages.emplace_back(code, *id);
  }
  return found;
}

std::optional<TokenId> SpeechVocabulary::language(std::string_view code) const {
  const auto place = std::ranges::find(languages, code, &std::pair<std::string, TokenId>::first);
  return place == languages.end() ? std::nullopt : std::optional(place->second);
}

}  // namespace quire
