#pragma once
// Bodies of the calls for vectors, prepared for a model of bytes without a server.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/api/pooling/pooling_request.h"
#include "server/fake_engine.h"
#include "server/request/request_context.h"
#include "server/request/served_model.h"

namespace quire {

class PoolingBodies : public ::testing::Test {
 protected:
  using Prepare = Result<PreparedPooling> (*)(std::string body, const RequestContext& context);

  PoolingBodies() { load(); }
  void load() { model_ = ServedModel::create(engine_, options_).value(); }
  Result<PreparedPooling> prepared(Prepare prepare, const std::string& body) {
    return prepare(body, {.model = *model_, .options = options_, .tenant = "t"});
  }
  std::string error(Prepare prepare, const std::string& body) {
    const auto ready = prepared(prepare, body);
    return ready ? "accepted" : ready.error().to_string();
  }
  std::vector<std::string> prompts(Prepare prepare, const std::string& body) {
    const auto ready = prepared(prepare, body);
    if (!ready) return {ready.error().to_string()};
    std::vector<std::string> texts;
    for (const EngineRequest& request : ready->requests) texts.push_back(tokens_to_bytes(request.prompt));
    return texts;
  }
  std::string answer(Prepare prepare, const std::string& body, const std::vector<PooledVector>& vectors) {
    return prepared(prepare, body).value().answer({.id = "id", .model = "m", .created_s = 5}, vectors).value();
  }

  FakeEngine engine_;
  ServerOptions options_;
  std::unique_ptr<ServedModel> model_;
};

inline PoolingInfo cross_encoder(const std::string& yes, const std::string& pair_template) {
  PoolingInfo info;
  info.no_token = "n";
  info.yes_token = yes;
  info.pair_template = pair_template;
  return info;
}

inline std::string many_texts(std::size_t count) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += i == 0 ? "\"a\"" : ",\"a\"";
  return list + "]";
}

}  // namespace quire
