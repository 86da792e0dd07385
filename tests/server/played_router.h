#pragma once
// A router with a fake engine and a job pool that the test drives by hand.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/fake_engine.h"
#include "server/request/served_model.h"
#include "server/router.h"
namespace quire {

class PlayedRouter : public ::testing::Test {
 protected:
  PlayedRouter() = default;
  // Serves one more API than the server has.
  explicit PlayedRouter(MakeRoutes more) : apis_(apis_and(more)) {}

  struct Job {
    JobPool::Lane lane;
    std::function<void(const CancellationPoint&)> work;
    JobPool::Function done;
    // `cancellation` is called at the cancellation points of the work.
    void run(const CancellationPoint& cancellation = {}) const {
      work(cancellation);
      done();
    }
  };

  Reply post(const std::string& path, std::string body) {
    HttpRequest request;
    request.id = "id";
    request.method = "POST";
    request.target = path;
    request.body = std::move(body);
    return router_.handle(request, [this] { ++num_wakes_; });
  }
  // Runs the tasks that the engine posted to the server's thread.
  void run_posted() {
    for (; !posted_.empty(); posted_.pop_front()) posted_.front()();
  }
  static std::string chat_of(std::size_t num_bytes) {
    return R"({"messages": [{"role": "user", "content": "a"}], "user": ")" + std::string(num_bytes, 'u') + "\"}";
  }

  static std::vector<MakeRoutes> apis_and(MakeRoutes more) {
    std::vector<MakeRoutes> apis(Router::all_apis().begin(), Router::all_apis().end());
    apis.push_back(more);
    return apis;
  }

  FakeEngine engine_;
  std::deque<EngineClient::Task> posted_;
  EngineClient client_{engine_, [this](EngineClient::Task task) { posted_.push_back(std::move(task)); }};
  std::unique_ptr<ServedModel> model_ = ServedModel::create(engine_, {}).value();
  ServerOptions options_{.retry_after_s = 7};
  Logger logger_{{.level = LogLevel::off}};
  bool has_room_ = true;
  std::vector<MakeRoutes> apis_{Router::all_apis().begin(), Router::all_apis().end()};
  std::deque<Job> jobs_;
  Router router_{client_,
                 *model_,
                 options_,
                 logger_,
                 [this](JobPool::Lane lane, JobPool::Job job) {
                   if (has_room_) jobs_.push_back({lane, std::move(job.work), std::move(job.done)});
                   return has_room_;
                 },
                 apis_};
  int num_wakes_ = 0;
};

}  // namespace quire
