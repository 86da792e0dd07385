#pragma once
// A web server that sends an image, and all errors that may occur with one.
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <thread>
#include <vector>

namespace quire {

// Answers connections one after the other, by the requested path:
//   /cat         `picture`
//   /to/...      a redirect to the rest of the path
//   /hop/N       redirects N times, then answers as /cat
//   /huge, /endless  sends more bytes than announced, without end
//   /slow        begins and never continues
//   /gone        404
class PictureHost {
 public:
  explicit PictureHost(std::string picture) : picture_(std::move(picture)), thread_([this] { run(); }) {}
  ~PictureHost() {
    is_over_ = true;
    boost::system::error_code ignored;
    boost::asio::io_context io;
    boost::asio::ip::tcp::socket last(io);
    last.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  PictureHost(const PictureHost&) = delete;
  PictureHost& operator=(const PictureHost&) = delete;

  [[nodiscard]] std::string port() const { return std::to_string(acceptor_.local_endpoint().port()); }
  [[nodiscard]] std::string at(const std::string& path, const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + port() + path;
  }
  [[nodiscard]] unsigned num_asked() const { return num_pending_calls_; }

 private:
  using Socket = boost::asio::ip::tcp::socket;

  static void say(Socket& socket, const std::string& text) {
    boost::system::error_code ignored;
    boost::asio::write(socket, boost::asio::buffer(text), ignored);
  }
  static void say_whole(Socket& socket, const std::string& status, const std::string& body, const std::string& more = {}) {
    say(socket, "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more + "\r\n" + body);
  }
  void run() {
    while (true) {
      Socket socket = acceptor_.accept();
      if (is_over_) return;
      boost::asio::streambuf buffer;
      boost::system::error_code code;
      boost::asio::read_until(socket, buffer, "\r\n\r\n", code);
      if (code) continue;
      std::istream head(&buffer);
      std::string verb, path;
      head >> verb >> path;
      ++num_pending_calls_;
      answer(std::move(socket), path);
    }
  }
  void answer(Socket socket, const std::string& path) {
    if (path == "/cat" || path == "/hop/0") return say_whole(socket, "200 OK", picture_, "Content-Type: text/html\r\n");
    if (path.starts_with("/to/")) return say_whole(socket, "302 Found", "", "Location: " + path.substr(4) + "\r\n");
    if (path.starts_with("/hop/")) {
      const int left = std::stoi(path.substr(5)) - 1;
      return say_whole(socket, "307 Temporary Redirect", "elsewhere", "Location: ../hop/" + std::to_string(left) + "\r\n");
    }
    if (path == "/huge") return say(socket, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    if (path == "/endless") {
      const std::string some(16 << 10, 'x');
      boost::system::error_code code;
      say(socket, "HTTP/1.1 200 OK\r\n\r\n");
      while (!code && !is_over_) boost::asio::write(socket, boost::asio::buffer(some), code);
      return;
    }
    if (path == "/slow") {
      say(socket, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all");
      return open_.push_back(std::move(socket));
    }
    say_whole(socket, "404 Not Found", picture_);
  }

  const std::string picture_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::atomic<bool> is_over_ = false;
  std::atomic<unsigned> num_pending_calls_ = 0;
  std::vector<Socket> open_;  // their clients wait
  std::thread thread_;
};

}  // namespace quire
