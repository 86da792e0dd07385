// Tests bodies and headers of the operators' routes.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "server/operate/chat_page.h"
#include "server/operate/page_reply.h"
#include "server/running_server.h"

namespace quire {
namespace {

class OperateRoutes : public RunningServer {
 protected:
  ClientResponse get(const std::string& path) { return HttpClient(port).get(path); }
};

TEST_F(OperateRoutes, AnswerWithTheirBodiesAndHeaders) {
  engine.answer_with("x");
  start();
  EXPECT_EQ(get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(get("/ready").body, R"({"status":"ready"})");
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":false})");
  EXPECT_EQ(post("/reset_mm_cache", "").body,
            R"({"reset":false,"reason":"decoded images are not cached; POST /reset_encoder_cache clears the encoder outputs"})");
  EXPECT_EQ(post("/reset_mm_cache?x=1", "").status, 400U);
  for (const char* path : {"/", "/docs", "/dashboard"}) {
    const ClientResponse page = get(path);
    EXPECT_EQ(page.status, 200U);
    EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
    EXPECT_EQ(page.header("Cache-Control"), "no-cache");
    EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
    EXPECT_TRUE(page.header("Content-Security-Policy").starts_with("default-src 'none'; ")) << page.head;
    EXPECT_TRUE(page.header("Content-Security-Policy").ends_with("frame-ancestors 'none'")) << page.head;
    EXPECT_EQ(page.header("Content-Security-Policy").find("unsafe"), std::string::npos) << page.head;
    EXPECT_EQ(page.header("Content-Security-Policy"), page_policy(page.body)) << "the hashes must be those of this page";
  }
  EXPECT_EQ(get("/metrics").header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(get("/health").header("Content-Type"), "application/json");
  engine.set_paused(true);
  const ClientResponse paused = get("/ready");
  EXPECT_EQ(paused.status, 503U);
  EXPECT_EQ(paused.error_message(), "the engine is paused; send POST /resume");
  EXPECT_EQ(paused.header("Retry-After"), "1");
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":true})");
  engine.stop(0.0);
  EXPECT_EQ(get("/ready").error_message(), "the engine has been stopped; restart the server");
  EXPECT_EQ(get("/ready").status, 503U);
}

TEST(PagePolicy, NamesScriptsAndStylesByTheirDigests) {
  // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
  const std::string policy = page_policy("<style>a{}</style><script>alert(1)</script>");
  EXPECT_NE(policy.find("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=';"), std::string::npos) << policy;
  EXPECT_NE(policy.find("style-src 'sha256-"), std::string::npos) << policy;
  EXPECT_NE(page_policy("text").find("style-src 'none'; script-src 'none';"), std::string::npos);
}

TEST(ChatPage, LoadsNothingFromOtherSitesAndInsertsNoHtml) {
  const std::string_view page = chat_page_html();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* from_elsewhere :
       {"//www.", "@import", "src=", "import(", "<link", "url(", "XMLHttpRequest", "WebSocket", "eval(", "new Function"})
    EXPECT_EQ(page.find(from_elsewhere), std::string_view::npos) << from_elsewhere;
  for (const char* html : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "setHTML"})
    EXPECT_EQ(page.find(html), std::string_view::npos) << html << ": text must not be inserted as HTML";
  EXPECT_EQ(page.find("QUIRE_PAGE"), std::string_view::npos) << "a placeholder was not replaced";
}

}  // namespace
}  // namespace quire
