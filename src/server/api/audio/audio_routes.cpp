// Routes for transcripts. The job pool reads forms, decodes recordings and computes the encoder input of the first window. The bytes of
// audio in memory are limited: a recording reserves the longest allowed size while it is decoded, and its actual size afterwards.
#include "server/api/audio/audio_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "audio/audio_reader.h"
#include "server/api/audio/transcription_call.h"
#include "server/api/serving.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

// The state that all calls share. Used on any thread.
struct AudioApi {
  AudioApi(Result<std::shared_ptr<const SpeechModel>> found, std::uint64_t max_bytes) : speech(std::move(found)), samples(max_bytes) {}

  Result<std::shared_ptr<const SpeechModel>> speech;  // or the error that every request gets
  BodyBudget samples;
};

Result<std::shared_ptr<const SpeechModel>> find_speech(Serving& serving) {
  const ModelInfo& info = serving.engine().engine().model();
  auto words = SpeechVocabulary::find(serving.model(), info);
  if (!words) return std::unexpected(std::move(words.error()));
  if (auto checked = check_audio_reader(); !checked) return std::unexpected(std::move(checked.error()));
  if (2 * info.encoder.num_positions != kWindowFrames)
    return fail(ErrorCode::unsupported, "model",
                fmt::format("has audio windows of {} frames, which are not supported", 2 * info.encoder.num_positions),
                fmt::format("use a model with windows of {} frames", kWindowFrames));
  const std::uint32_t num_bands = info.encoder.num_features;
  if (num_bands > kFrameWidth / 2)
    return fail(ErrorCode::unsupported, "model", fmt::format("uses {} mel bands, which are not supported", num_bands),
                "use a model with 80 or 128 mel bands");
  return std::make_shared<const SpeechModel>(
      SpeechModel{*std::move(words), info.speech, LogMel(num_bands), serving.model().max_model_len()});
}

struct PreparedTranscription {
  TranscriptionRequest request;
  SharedFeatures first_window;
  std::shared_ptr<BodyBudget::Lease> lease;
};

Result<PreparedTranscription> prepare_transcription(const std::shared_ptr<AudioApi>& api, const RequestContext& context,
                                                    const std::string& content_type, const std::string& body, bool is_translation) {
  const SpeechModel& speech = **api->speech;
  std::string_view file;
  auto request = read_transcription(content_type, body, is_translation, speech, context, file);
  if (!request) return std::unexpected(std::move(request.error()));
  const double most = context.options.max_audio_seconds;
  const auto lease_of = [&](std::size_t num_samples) -> std::shared_ptr<BodyBudget::Lease> {
    // The deleter holds `api`, because the lease may outlive the routes.
    std::shared_ptr<BodyBudget::Lease> lease(new BodyBudget::Lease(api->samples), [api](const BodyBudget::Lease* held) { delete held; });
    return lease->grow_to(num_samples * sizeof(float)) ? lease : nullptr;
  };
  auto whole = lease_of(static_cast<std::size_t>(most * kAudioSampleRate));
  if (whole == nullptr) return fail(ErrorCode::overloaded, "", "the memory for audio is full", "try again later");
  auto samples = read_audio(file, most);
  if (!samples) return std::unexpected(std::move(samples.error()));
  samples->shrink_to_fit();
  whole.reset();
  PreparedTranscription prepared{*std::move(request), nullptr, lease_of(samples->size())};
  if (prepared.lease == nullptr) return fail(ErrorCode::overloaded, "", "the memory for audio is full", "try again later");
  prepared.request.samples = std::make_shared<const std::vector<float>>(*std::move(samples));
  prepared.first_window = TranscriptionCall::compute_features(speech, *prepared.request.samples, 0);
  return prepared;
}

Reply transcribe(Serving& serving, const std::shared_ptr<AudioApi>& api, bool is_translation, HttpRequest& request, const Wake& wake) {
  if (serving.is_draining())
    return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
  if (!api->speech) return serving.refuse(api->speech.error());
  // A small file may contain long audio. The size is therefore overstated, so that files are never read on this thread, and one client's
  // files are read one at a time.
  const std::size_t num_bytes = std::max<std::size_t>(request.body.size(), serving.options().max_body_bytes);
  return serving.read_body(
      request, num_bytes, wake,
      [&serving, api, is_translation, id = request.answer_id(), content_type = request.content_type, client = request.client,
       tenant = serving.tenant_of(request)](const std::string& body, const CancellationPoint& cancellation) -> Serving::RemainingWork {
        auto prepared = prepare_transcription(api, serving.context(tenant, &cancellation), content_type, body, is_translation);
        if (!prepared) return serving.refusal(prepared.error());
        return [&serving, api, id, client, tenant,
                kept = std::make_shared<PreparedTranscription>(*std::move(prepared))](const Wake& then_wake) -> Reply {
          auto call = TranscriptionCall::start(serving, {.request = std::move(kept->request),
                                                         .first_window = std::move(kept->first_window),
                                                         .samples_lease = std::move(kept->lease),
                                                         .speech = *api->speech,
                                                         .id = fmt::format("transcribe-{}", id),
                                                         .tenant = tenant,
                                                         .client = client,
                                                         .wake = then_wake});
          if (!call) return serving.refuse(call.error());
          return {HttpResponse{}, *std::move(call)};
        };
      });
}

}  // namespace

ApiRoutes audio_routes(Serving& serving) {
  auto api = std::make_shared<AudioApi>(find_speech(serving), serving.options().max_audio_bytes_in_flight);
  const auto route = [&](std::string_view path, bool is_translation) {
    const auto handle = [&serving, api, is_translation](HttpRequest& request, const Wake& wake) {
      return transcribe(serving, api, is_translation, request, wake);
    };
    return Route{path, "POST", Access::key, handle, true};
  };
  return {.routes = {route("/v1/audio/transcriptions", false), route("/v1/audio/translations", true)}};
}

}  // namespace quire
