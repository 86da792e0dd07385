// The addresses of calls for transcripts. Forms are read, recordings decoded and the first windows made in the job pool. How much sound is
// in memory at a time is bounded: a recording takes for the time of its decoding what the longest may, and then what it has.
#include "server/api/audio/audio_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "server/api/audio/transcription_call.h"
#include "server/api/serving.h"
#include "server/request/served_model.h"
#include "sound/sound_reader.h"

namespace quire {
namespace {

// Of all calls. Any thread.
struct AudioApi {
  AudioApi(Result<std::shared_ptr<const SpeechModel>> found, std::uint64_t max_bytes) : speech(std::move(found)), samples(max_bytes) {}

  Result<std::shared_ptr<const SpeechModel>> speech;  // or why nothing is heard
  BodyBudget samples;
};

Result<std::shared_ptr<const SpeechModel>> find_speech(Serving& serving) {
  const ModelInfo& info = serving.engine().engine().model();
  auto words = SpeechVocabulary::find(serving.model(), info);
  if (!words) return std::unexpected(std::move(words.error()));
  if (auto reads = check_sound_reader(); !reads) return std::unexpected(std::move(reads.error()));
  if (2 * info.encoder.num_positions != kWindowFrames)
    return fail(ErrorCode::unsupported, "model", fmt::format("hears windows of {} frames", 2 * info.encoder.num_positions),
                fmt::format("serve a model that hears {}", kWindowFrames));
  const std::uint32_t num_bands = info.encoder.num_features;
  if (num_bands > kFrameWidth / 2)
    return fail(ErrorCode::unsupported, "model", fmt::format("hears {} bands", num_bands), "serve a model that hears 80 or 128");
  return std::make_shared<const SpeechModel>(
      SpeechModel{*std::move(words), info.speech, LogMel(num_bands), serving.model().max_model_len()});
}

struct Heard {
  TranscriptionRequest request;
  SharedFeatures first_window;
  std::shared_ptr<BodyBudget::Lease> lease;
};

Result<Heard> hear_first(const std::shared_ptr<AudioApi>& api, const RequestContext& context, const std::string& content_type,
                         const std::string& body, bool is_translation) {
  const SpeechModel& speech = **api->speech;
  std::string_view file;
  auto request = read_transcription(content_type, body, is_translation, speech, context, file);
  if (!request) return std::unexpected(std::move(request.error()));
  const double most = context.options.max_sound_seconds;
  const auto lease_of = [&](std::size_t num_samples) -> std::shared_ptr<BodyBudget::Lease> {
    // Which may outlive the routes.
    std::shared_ptr<BodyBudget::Lease> lease(new BodyBudget::Lease(api->samples), [api](const BodyBudget::Lease* held) { delete held; });
    return lease->grow_to(num_samples * sizeof(float)) ? lease : nullptr;
  };
  auto whole = lease_of(static_cast<std::size_t>(most * kSoundRate));
  if (whole == nullptr) return fail(ErrorCode::overloaded, "", "too much sound is being heard", "try again later");
  auto samples = read_sound(file, most);
  if (!samples) return std::unexpected(std::move(samples.error()));
  samples->shrink_to_fit();
  whole.reset();
  Heard heard{*std::move(request), nullptr, lease_of(samples->size())};
  if (heard.lease == nullptr) return fail(ErrorCode::overloaded, "", "too much sound is being heard", "try again later");
  heard.request.samples = std::make_shared<const std::vector<float>>(*std::move(samples));
  heard.first_window = TranscriptionCall::hear(speech, *heard.request.samples, 0);
  return heard;
}

Reply transcribe(Serving& serving, const std::shared_ptr<AudioApi>& api, bool is_translation, HttpRequest& request, const Wake& wake) {
  if (serving.is_draining())
    return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  if (!api->speech) return serving.refuse(api->speech.error());
  // Small files may be long, so that none is read here.
  const std::size_t num_bytes = std::max(request.body.size(), kMaxInlineBytes * 32);
  return serving.read_body(request, num_bytes, wake,
                           [&serving, api, is_translation, id = request.id, content_type = request.content_type,
                            tenant = serving.tenant_of(request)](const std::string& body) -> Serving::Then {
                             auto heard = hear_first(api, serving.context(tenant), content_type, body, is_translation);
                             if (!heard) return serving.refusal(heard.error());
                             return [&serving, api, id, tenant,
                                     kept = std::make_shared<Heard>(*std::move(heard))](const Wake& then_wake) -> Reply {
                               auto call = TranscriptionCall::start(serving, {.request = std::move(kept->request),
                                                                              .first_window = std::move(kept->first_window),
                                                                              .samples_lease = std::move(kept->lease),
                                                                              .speech = *api->speech,
                                                                              .id = fmt::format("transcribe-{}", id),
                                                                              .tenant = tenant,
                                                                              .wake = then_wake});
                               if (!call) return serving.refuse(call.error());
                               return {HttpResponse{}, *std::move(call)};
                             };
                           });
}

}  // namespace

ApiRoutes audio_routes(Serving& serving) {
  auto api = std::make_shared<AudioApi>(find_speech(serving), serving.options().max_sound_bytes_in_flight);
  const auto route = [&](std::string_view path, bool is_translation) {
    const auto handle = [&serving, api, is_translation](HttpRequest& request, const Wake& wake) {
      return transcribe(serving, api, is_translation, request, wake);
    };
    return Route{path, "POST", Access::key, handle, true};
  };
  return {.routes = {route("/v1/audio/transcriptions", false), route("/v1/audio/translations", true)}};
}

}  // namespace quire
