// Tests that keys determine the tenant of a request, and that tenants share nothing.
#include "server/http/tenants.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/resolve_options.h"
#include "engine/trace/trace_folder.h"
#include "runtime/worker/simulated_worker.h"
#include "server/running_server.h"

namespace quire {
namespace {

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

class TenantsTest : public RunningServer {
 protected:
  // Sends the request, answers it, and returns the request that the engine received.
  EngineRequest submitted(const std::string& headers, const std::string& body = R"({"prompt": "abc"})") {
    clients_.push_back(std::make_unique<HttpClient>(port));
    clients_.back()->send(HttpClient::post_text("/v1/completions", body, headers));
    EXPECT_TRUE(engine.wait_submitted(++num_submitted_));
    return engine.at(num_submitted_ - 1).request;
  }
  unsigned status(const std::string& path, const std::string& headers, const std::string& body = "{}") {
    return post(path, body, headers).status;
  }

  std::size_t num_submitted_ = 0;

 private:
  std::vector<std::unique_ptr<HttpClient>> clients_;
};

TEST_F(TenantsTest, KeyDeterminesTheTenant) {
  start({.api_key = "own", .tenant_keys = {{"a", "key=1"}, {"a", "key-2"}, {"b", "key-3"}}});
  EXPECT_EQ(submitted(bearer("own")).tags.tenant, "");
  EXPECT_EQ(submitted(bearer("key=1")).tags.tenant, "a");
  EXPECT_EQ(submitted(bearer("key-2")).tags.tenant, "a");
  EXPECT_EQ(submitted(bearer("key-3")).tags.tenant, "b");
  const std::string large = R"({"prompt": "abc", "user": ")" + std::string(5000, 'x') + "\"}";
  EXPECT_EQ(submitted(bearer("key-3"), large).tags.tenant, "b") << "a large body is read by another thread";
  for (const char* wrong : {"a", "a=key=1", "key", "key-33", "KEY-3", ""}) {
    const ClientResponse refused = post("/v1/completions", "{}", bearer(wrong));
    EXPECT_EQ(refused.status, 401U) << wrong;
    EXPECT_EQ(refused.json().at("error").at("code"), "invalid_api_key");
  }
  EXPECT_EQ(status("/v1/completions", ""), 401U);
  EXPECT_EQ(HttpClient(port).get("/v1/models").status, 401U);
  EXPECT_EQ(HttpClient(port).get("/v1/models", bearer("key-2")).status, 200U);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(TenantsTest, SchemeIsCaseInsensitiveAndTheKeyIsNot) {
  start({.api_key = "Own", .tenant_keys = {{"a", "key-1"}}});
  const auto models = [&](const std::string& value) {
    return HttpClient(port).get("/v1/models", "Authorization: " + value + "\r\n").status;
  };
  for (const char* scheme : {"Bearer", "bearer", "BEARER", "bEaReR", "bearer  "})
    EXPECT_EQ(models(std::string(scheme) + " key-1"), 200U) << scheme;
  for (const char* wrong :
       {"bearer KEY-1", "bearer own", "bearer", "bearer ", "bearerkey-1", "key-1", "Basic key-1", "bear key-1", "bearer\tkey-1"})
    EXPECT_EQ(models(wrong), 401U) << wrong;
}

TEST_F(TenantsTest, AKeyIsRequiredWhenTenantsHaveKeys) {
  start({.tenant_keys = {{"a", "key-1"}}});
  EXPECT_EQ(status("/v1/completions", ""), 401U);
  EXPECT_EQ(status("/pause", "", ""), 401U);
  EXPECT_EQ(submitted(bearer("key-1")).tags.tenant, "a");
}

TEST_F(TenantsTest, ClientCannotChooseItsTenant) {
  start({.tenant_keys = {{"a", "key-1"}, {"b", "key-2"}}});
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "abc", "tenant": "b"})", bearer("key-1")).error_param(), "tenant");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "abc", "vllm_xargs": {"tenant": "b"}})", bearer("key-1")).error_param(),
            "vllm_xargs.tenant");
  const std::string headers = bearer("key-1") + "X-Tenant: b\r\nTenant: b\r\nX-Api-Key: key-2\r\n" + bearer("key-2");
  const EngineRequest request = submitted(headers, R"({"prompt": "abc", "user": "b", "hints": {"tenant": "b"}})");
  EXPECT_EQ(request.tags.tenant, "a");
}

TEST_F(TenantsTest, TenantsDoNotOperateTheServer) {
  start({.api_key = "own", .tenant_keys = {{"a", "key-1"}}});
  for (const char* path : {"/pause", "/resume", "/reset_prefix_cache"}) {
    const ClientResponse refused = post(path, "", bearer("key-1"));
    EXPECT_EQ(refused.status, 403U) << path;
    EXPECT_NE(refused.error_message().find("tenant's key"), std::string::npos);
  }
  for (const char* path : {"/is_paused", "/metrics"}) {
    EXPECT_EQ(HttpClient(port).get(path, bearer("key-1")).status, 403U) << path;
    EXPECT_EQ(HttpClient(port).get(path, bearer("own")).status, 200U) << path;
  }
}

TEST_F(TenantsTest, AnotherTenantsAnswerLooksUnknown) {
  start({.api_key = "own", .tenant_keys = {{"a", "key-1"}, {"b", "key-2"}, {"a", "key-3"}}});
  const std::string mine = "X-Request-Id: mine\r\n";
  submitted(mine + bearer("key-1"), R"({"prompt": "of a"})");
  const std::string fork = "/v1/requests/cmpl-mine/fork";
  const ClientResponse refused = post(fork, "{}", bearer("key-2"));
  EXPECT_EQ(refused.status, 404U);
  EXPECT_EQ(refused.body, post(fork, "{}", bearer("own")).body) << "the operator gets the same answer as for an unknown id";
  ASSERT_EQ(engine.num_submitted(), 1U);
  submitted(mine + bearer("key-2"), R"({"prompt": "of b"})");  // Tenant b may use the same id; it gets no data of tenant a.
  for (const auto& [key, prompt, tenant] : {std::tuple("key-1", "of a", "a"), {"key-3", "of a", "a"}, {"key-2", "of b", "b"}}) {
    HttpClient child(port);
    child.send(HttpClient::post_text(fork, "{}", bearer(key)));
    ASSERT_TRUE(engine.wait_submitted(++num_submitted_)) << key;
    const EngineRequest forked = engine.at(num_submitted_ - 1).request;
    EXPECT_EQ(tokens_to_bytes(forked.prompt), prompt);
    EXPECT_EQ(forked.tags.tenant, tenant);
  }
}

// Uses a real engine with a worker that does not compute.
class SharedPrefixes : public RunningServer {
 protected:
  ~SharedPrefixes() override { stop(); }

  void start_real(const std::string& secret, const std::string& trace = {}) {
    ModelInfo model = byte_model();
    model.num_layers = model.num_kv_heads = model.head_dim = 1;
    EngineOptions options;
    options.cache.num_blocks = 100;
    options.trace.path = trace;
    const ResolvedEngine resolved = resolve_options(options, model, {1, 0}).value();
    SimulatedWorkerOptions worker{.limits = resolved.limits,
                                  .block_size = resolved.options.cache.block_size,
                                  .num_blocks = resolved.options.cache.num_blocks,
                                  .vocab_size = kFakeVocab};
    real_ = make_engine(resolved, {std::make_unique<SimulatedWorker>(std::move(worker))}).value();
    start_with(*real_, {.api_key = "own", .tenant_keys = {{"a", "key-1"}, {"a", "key-2"}, {"b", "key-3"}}, .tenant_secret = secret});
  }
  ClientResponse ask(const std::string& key, const std::string& fields = {}) {
    const std::string prompt = "What one tenant sends is nobody else's business, neither its text nor its length.";
    return post("/v1/completions", R"({"max_tokens": 2, "ignore_eos": true, "prompt": ")" + prompt + "\"" + fields + "}", bearer(key));
  }
  std::int64_t cached(const std::string& key, const std::string& fields = {}) {
    return ask(key, fields).json().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  }

  std::unique_ptr<Engine> real_;
};

TEST_F(SharedPrefixes, AreSharedByAllTenantsWithoutASecret) {
  start_real("");
  EXPECT_EQ(cached("key-1"), 0);
  for (const char* key : {"key-1", "key-2", "key-3", "own"}) EXPECT_EQ(cached(key), 80) << key;
  EXPECT_EQ(cached("key-3", R"(, "cache_salt": "mine")"), 0);
  EXPECT_EQ(cached("key-1", R"(, "cache_salt": "mine")"), 80);
}

TEST_F(SharedPrefixes, AreSharedWithinATenantWithASecret) {
  start_real("secret");
  EXPECT_EQ(cached("key-1"), 0);
  EXPECT_EQ(cached("key-1"), 80);
  EXPECT_EQ(cached("key-2"), 80) << "another key of the same tenant";
  EXPECT_EQ(cached("key-3"), 0) << "another tenant computes all tokens";
  EXPECT_EQ(cached("key-3"), 80);
  EXPECT_EQ(cached("own"), 0);
  const std::string salted = R"(, "cache_salt": "mine")";
  EXPECT_EQ(cached("key-3", salted), 0) << "a client's own salt still counts";
  EXPECT_EQ(cached("key-3", salted), 80);
  EXPECT_EQ(cached("key-1", salted), 0);
  const std::string stolen = R"(, "cache_salt": ")" + salt_of("secret", "a", "") + "\"";
  for (const char* key : {"key-3", "own"}) EXPECT_EQ(cached(key, stolen), 0) << "another tenant cannot use the salt of tenant a";
}

TEST_F(SharedPrefixes, TraceHasTenantsAndHintsOfAllChoices) {
  const TraceFolder folder;
  start_real("secret", folder.file("run"));
  EXPECT_EQ(ask("key-3", R"(, "n": 2, "hints": {"size": "small", "": "\u0001"})").status, 200U);
  EXPECT_EQ(ask("own").status, 200U);
  stop();
  real_->stop(0.0);
  real_.reset();
  std::size_t num_of_b = 0, num_own = 0;
  for (const std::string& line : folder.lines("run.requests.jsonl")) {
    if (line.find(R"("tenant":"b","hints":{"size":"small","":"\u0001"})") != std::string::npos) ++num_of_b;
    if (line.find(R"("tenant":null,"hints":{})") != std::string::npos) ++num_own;
    EXPECT_EQ(line.find("secret"), std::string::npos);
    EXPECT_EQ(line.find("key-3"), std::string::npos);
  }
  EXPECT_GE(num_of_b, 3U) << "the first step has one choice, the next steps have both";
  EXPECT_GE(num_own, 1U);
}

// The server must find its stored blocks again after a restart, so these digests must never change.
TEST(TenantSalt, IsTheDigestOfSecretTenantAndSalt) {
  EXPECT_EQ(salt_of("secret", "a", ""), "deafc943c3577a8bedceae0d167680ff9710433f7c124d35719265a38c20e6d8");
  EXPECT_EQ(salt_of("secret", "a", "mine"), "4c02a446d1a117f5eb37a502e9f43faf394c46f5f5eb15e5a1b1383b8e18e930");
  EXPECT_EQ(salt_of("", "a", "mine"), "mine");
  EXPECT_NE(salt_of("secret", "ab", "c"), salt_of("secret", "a", "bc"));
  EXPECT_NE(salt_of("secret", "", "a"), salt_of("secret", "a", ""));
  EXPECT_NE(salt_of("secret1:", "", ""), salt_of("secret", "1:", ""));
}

TEST(TenantKeys, NamesEachInvalidEntry) {
  for (const auto& [wrong, why] : {std::pair("", "no '='"),
                                   {"name", "no '='"},
                                   {"=hush", "has no tenant name"},
                                   {"name=", "no key for 'name'"},
                                   {"name=hush hush", "invalid characters"},
                                   {"na me=hush", "invalid characters"}}) {
    const auto parsed = parse_tenant_key(wrong, "tenant_key");
    ASSERT_FALSE(parsed.has_value()) << wrong;
    EXPECT_EQ(parsed.error().field, "tenant_key");
    EXPECT_NE(parsed.error().to_string().find(why), std::string::npos) << parsed.error().to_string();
    EXPECT_EQ(parsed.error().to_string().find("hush"), std::string::npos);
  }
  const auto parsed = parse_tenant_key("name.1=key=with=", "tenant_key");
  EXPECT_EQ(parsed->tenant, "name.1");
  EXPECT_EQ(parsed->key, "key=with=");
}

TEST(TenantKeys, ValidatesServerOptions) {
  const auto error = [](const ServerOptions& options) {
    const auto valid = options.validate();
    return valid ? std::string() : valid.error().to_string();
  };
  EXPECT_EQ(error({.api_key = "own", .tenant_keys = {{"a", "1"}, {"a", "2"}, {"b", "3"}}}), "");
  EXPECT_NE(error({.tenant_keys = {{"a", "1"}, {"", "2"}}}).find("tenant_keys: entry 2 has no tenant name"), std::string::npos);
  EXPECT_NE(error({.tenant_keys = {{"a", "same"}, {"b", "same"}}}).find("entry 2 gives 'b' a key that 'a' already has"), std::string::npos);
  EXPECT_NE(error({.api_key = "same", .tenant_keys = {{"a", "same"}}}).find("the server itself (api_key) already has"), std::string::npos);
  EXPECT_NE(error({.tenant_keys = {{"a", std::string(513, 'x')}}}).find("513 bytes"), std::string::npos);
}

class TenantKeysFile : public testing::Test {
 protected:
  static inline const std::string kBinary{"\x7f\x45\x4c\x46\x00\x01\n=\x00", 9};

  Result<std::vector<TenantKey>> read(const std::string& text) {
    std::ofstream(folder_.file("keys"), std::ios::binary) << text;
    return read_tenant_keys(folder_.file("keys"));
  }
  TraceFolder folder_;
};

TEST_F(TenantKeysFile, HasOneLinePerKey) {
  const auto keys = read("# keys of tenants\n\na=1\r\nb=2=\na=3");
  ASSERT_TRUE(keys.has_value()) << keys.error().to_string();
  ASSERT_EQ(keys->size(), 3U);
  EXPECT_EQ((*keys)[0].tenant + (*keys)[1].tenant + (*keys)[2].tenant, "aba");
  EXPECT_EQ((*keys)[0].key + (*keys)[1].key + (*keys)[2].key, "12=3");
}

TEST_F(TenantKeysFile, NamesTheInvalidLine) {
  const auto error = [&](const std::string& text) {
    const auto keys = read(text);
    EXPECT_FALSE(keys.has_value());
    if (keys) return std::string();
    EXPECT_EQ(keys.error().field, "tenant_keys_file");
    EXPECT_FALSE(keys.error().remedy.empty());
    return keys.error().message;
  };
  const std::string path = "'" + folder_.file("keys") + "'";
  EXPECT_EQ(error(""), path + " contains no key");
  EXPECT_EQ(error("# only this\n\n"), path + " contains no key");
  EXPECT_EQ(error("a=1\nhush\n"), "line 2 has no '='");
  EXPECT_EQ(error("a=1\n#\nb=2\nc=1\n"), "line 4 repeats the key of line 1");
  EXPECT_EQ(error("a=1\n=2"), "line 2 has no tenant name");
  EXPECT_EQ(error("a=\n"), "line 1 has no key for 'a'");
  EXPECT_EQ(error("a =1\n"), "line 1 has a tenant name with invalid characters");
  EXPECT_EQ(error("a=1 2\n"), "line 1 has a key with invalid characters");
  EXPECT_EQ(error("a=" + std::string(300'000, 'x')), "line 1 has a key of 300000 bytes, more than 512");
  EXPECT_EQ(error(std::string(300'000, 'x') + "=a"), "line 1 has a tenant name of 300000 bytes, more than 64");
  EXPECT_EQ(error(std::string(1'000'000, '\n')), path + " is larger than 512 KiB");
  EXPECT_EQ(error(kBinary), "line 1 has no '='");
  EXPECT_EQ(error(std::string("a=\x00\x01", 4)), "line 1 has a key with invalid characters");
}

TEST_F(TenantKeysFile, ReturnsAnErrorWhenUnreadable) {
  for (const std::string& name : {folder_.file("none"), folder_.file("")}) {
    const auto keys = read_tenant_keys(name);
    ASSERT_FALSE(keys.has_value());
    EXPECT_NE(keys.error().to_string().find("tenant_keys_file: '" + name + "' cannot be read: "), std::string::npos);
  }
}

TEST(TenantKeyErrors, NameTheEntryAndTheLimit) {
  const auto error = [](const std::string& entry) {
    const auto key = parse_tenant_key(entry, "f");
    return key ? "accepted" : key.error().to_string();
  };
  const std::string form = "; write NAME=KEY: NAME consists of letters, digits, '-', '_' and '.', KEY of visible ASCII characters";
  EXPECT_EQ(error("a"), "f: has no '='" + form);
  EXPECT_EQ(error("=k"), "f: has no tenant name" + form);
  EXPECT_EQ(error(std::string(64, 'a') + "=k"), "accepted");
  EXPECT_EQ(error(std::string(65, 'a') + "=k"), "f: has a tenant name of 65 bytes, more than 64" + form);
  EXPECT_EQ(error("azAZ09-_.=!~"), "accepted");
  for (const char* name : {"a b", "a/b", "a:b", "a@b", "a[b", "a`b", "a{b"})
    EXPECT_EQ(error(std::string(name) + "=k"), "f: has a tenant name with invalid characters" + form) << name;
  EXPECT_EQ(error("a="), "f: has no key for 'a'" + form);
  EXPECT_EQ(error("a=" + std::string(512, 'k')), "accepted");
  EXPECT_EQ(error("a=" + std::string(513, 'k')), "f: has a key of 513 bytes, more than 512" + form);
  for (const char* key : {"k k", "k\x7F", "k\t", "k\xC3\xA4"})
    EXPECT_EQ(error("a=" + std::string(key)), "f: has a key with invalid characters" + form) << key;
  ServerOptions options;
  options.tenant_keys = {{"a", "k"}, {"b", "l"}};
  const ApiKeys keys(options);
  EXPECT_EQ(keys.tenant_of("Bearer l").value(), "b");
  EXPECT_EQ(keys.tenant_of("bEARER   k").value(), "a");
  EXPECT_EQ(keys.tenant_of("").error().to_string(), "Authorization: is missing; send 'Authorization: Bearer KEY'");
  for (const char* wrong : {"Bearer", "Bearer ", "Bearerk", "Basic k", "Bearer m", "k"})
    EXPECT_EQ(keys.tenant_of(wrong).error().to_string(), "Authorization: does not contain a valid key; send 'Authorization: Bearer KEY'")
        << wrong;
  EXPECT_EQ(ApiKeys(ServerOptions()).tenant_of("").value(), "");
  options.api_key = "own";
  EXPECT_EQ(ApiKeys(options).tenant_of("Bearer own").value(), "");
}

}  // namespace
}  // namespace quire
