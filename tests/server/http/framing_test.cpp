// Tests that the end of a request is unambiguous. Framing that another server may read differently is refused, and no bytes after it are
// read.
#include <string>
#include <vector>

#include "server/http/request_head.h"
#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kBehind = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string header_with(const std::string& lines, const std::string& version = "HTTP/1.1") {
  return "POST /tokenize " + version + "\r\nHost: localhost\r\nContent-Type: application/json\r\n" + lines + "\r\n";
}

std::vector<std::string> ambiguous_headers() {
  std::vector<std::string> headers;
  for (const char* coding : {"identity",
                             "gzip",
                             "deflate",
                             "compress",
                             "br",
                             "xchunked",
                             "chunkedx",
                             "chunked, identity",
                             "identity, chunked",
                             "gzip, chunked",
                             "chunked, chunked",
                             "chunked,",
                             ", chunked",
                             "chunked;q=1",
                             "\"chunked\"",
                             "'chunked'",
                             "chunked\tchunked",
                             "chun ked",
                             "\x0b"
                             "chunked",
                             "chunked\x0c",
                             "",
                             ",",
                             "chunked\xa0",
                             "trailers",
                             "x",
                             "chunke\xc4\xb1"})
    headers.push_back(header_with("Transfer-Encoding: " + std::string(coding) + "\r\n"));
  for (const char* lines : {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: chunked\r\ntransfer-encoding: gzip\r\n",
                            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                            "Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
                            "Transfer-Encoding:\r\n chunked\r\n",
                            "Transfer-Encoding:\r\n\tchunked\r\n",
                            "Transfer-Encoding: chunked\r\n , identity\r\n",
                            "Transfer-Encoding : chunked\r\n",
                            "Transfer-Encoding\t: chunked\r\n",
                            " Transfer-Encoding: chunked\r\n",
                            "X: y\r\n Transfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: chunked\nX: y\r\n",
                            "X: y\rTransfer-Encoding: chunked\r\n",
                            "Transfer Encoding: chunked\r\n",
                            ": chunked\r\n",
                            "Transfer-Encoding\r\n",
                            "Transfer-Encoding\x01: chunked\r\n",
                            "Content-Length: 5\r\nContent-Length: 6\r\n",
                            "Content-Length: 5\r\nContent-Length: 5\r\n",
                            "Content-Length: 5, 5\r\n",
                            "Content-Length: +5\r\n",
                            "Content-Length: -1\r\n",
                            "Content-Length: 0x5\r\n",
                            "Content-Length: 5 5\r\n",
                            "Content-Length: \r\n",
                            "Content-Length: 5e0\r\n",
                            "Content-Length: 99999999999999999999999\r\n",
                            "Content-Length:\r\n 5\r\n",
                            "Content-Length : 5\r\n",
                            "Content-Length: 5\r\n 6\r\n"})
    headers.push_back(header_with(lines));
  headers.push_back(header_with("Transfer-Encoding: chunked\r\n", "HTTP/1.0"));
  headers.push_back(header_with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "HTTP/1.0"));
  headers.push_back(header_with(std::string("X: a\0b\r\n", 8)));
  return headers;
}

using FramingTest = RunningServer;

TEST_F(FramingTest, RefusesAmbiguousFramingAndReadsNothingAfterIt) {
  start();
  for (const std::string& header : ambiguous_headers())
    for (const std::string& between :
         {std::string(), std::string("0\r\n\r\n"), std::string("5\r\nhello\r\n0\r\n\r\n"), std::string("hello")}) {
      HttpClient client(port);
      client.send(header + between + kBehind + kBehind);
      const ClientResponse refused = client.receive();
      EXPECT_EQ(refused.status, 400U) << header << between;
      EXPECT_EQ(refused.header("Connection"), "close") << header;
      EXPECT_EQ(client.receive().status, 0U) << "a second answer to: " << header << between;
    }
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(FramingTest, ReadsChunkedInAnyCaseAndThenTheNextRequest) {
  start();
  for (const char* coding : {"chunked", "Chunked", "CHUNKED", "  chunked", "\tchunked \t"}) {
    HttpClient client(port);
    client.send(header_with("Transfer-Encoding:" + std::string(coding) + "\r\n") +
                "8;ext=\"1\"\r\n{\"prompt\r\n007\r\n\": \"ab\"\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n" + kBehind);
    EXPECT_EQ(client.receive().json().at("count"), 2) << coding;
    EXPECT_NE(client.receive().body.find("version"), std::string::npos) << coding;
  }
}

TEST_F(FramingTest, ReadsAHeaderThatArrivesByteByByte) {
  start();
  HttpClient client(port);
  const std::string request = header_with("Content-Length: 16\r\n") + R"({"prompt": "ab"})";
  for (const char byte : request) client.send(std::string(1, byte));
  EXPECT_EQ(client.receive().json().at("count"), 2);
}

TEST_F(FramingTest, RefusesAChunkHeaderWithoutEnd) {
  start();
  HttpClient client(port);
  client.send(header_with("Transfer-Encoding: chunked\r\n") + "5;" + std::string(200'000, 'x'));
  const ClientResponse refused = client.receive();
  EXPECT_TRUE(refused.status == 400U || refused.status == 0U) << refused.status;
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(FramingTest, ServesATargetInAbsoluteForm) {
  start();
  for (const char* target :
       {"http://localhost/version", "HTTP://LOCALHOST:1/version", "https://127.0.0.1/version?", "http://[::1]:80/version"})
    EXPECT_NE(HttpClient(port).ask("GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n").body.find("version"),
              std::string::npos)
        << target;
  EXPECT_EQ(HttpClient(port).ask("GET http://localhost HTTP/1.1\r\nHost: localhost\r\n").status, 200U) << "the page at /";
  HttpClient client(port);
  client.send(
      "POST http://localhost/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "15\r\n\r\n{\"prompt\": \"a\"}");
  EXPECT_EQ(client.receive().status, 200U);
  EXPECT_EQ(HttpClient(port).ask("GET http://evil.example/version HTTP/1.1\r\nHost: localhost\r\n").status, 421U)
      << "the target's host counts";
  for (const char* target : {"http://", "http:///version", "http://a b/version", "http://x@localhost/version", "ftp://localhost/version",
                             "localhost:80", "version"}) {
    const unsigned status = HttpClient(port).ask("GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n").status;
    EXPECT_EQ(status, 400U) << target;
  }
}

TEST(FramingProblem, NamesTheProblem) {
  EXPECT_EQ(framing_problem("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "");
  EXPECT_EQ(framing_problem("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChUnKeD\r\n\r\n"), "");
  EXPECT_NE(framing_problem("GET / HTTP/1.1\r\nTransfer-Encoding: zstd\r\n\r\n").find("'zstd'"), std::string::npos);
  EXPECT_NE(framing_problem("GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n").find("two Content-Length headers"),
            std::string::npos);
  EXPECT_NE(framing_problem("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").find("HTTP/1.0"), std::string::npos);
}

}  // namespace
}  // namespace quire
