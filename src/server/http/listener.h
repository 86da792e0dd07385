#pragma once
// Accepts connections, keeps them in a table, and ends them when the server stops.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>

#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/server.h"
#include "quire/server_options.h"
#include "server/http/connection.h"
#include "server/http/connection_table.h"
#include "server/http/descriptors.h"
#include "server/http/request_handler.h"

namespace quire {

// Used on the server's thread only. States: listening -> draining -> ended.
class Listener {
 public:
  struct Events {
    std::function<void()> on_drain;  // called once, when the server begins to stop
    std::function<void()> on_end;    // called once, after the last connection has ended
  };

  // All arguments must outlive this object. Destroy it before `io`, whose destructor destroys unfinished connections.
  Listener(boost::asio::io_context& io, RequestHandler& handler, const ServerOptions& options, Logger& logger, Events events);

  // Errors: `io` (the address is in use).
  Result<void> listen(BoundPort port);
  // Begins to accept connections, which happens when the io_context runs. `handles_signals`: SIGTERM and SIGINT call stop().
  void start(bool handles_signals);
  // The first call lets requests in flight end within drain_timeout_ms. The second call, or the timeout, closes all connections.
  void stop();

  [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const;

 private:
  boost::asio::awaitable<void> accept();
  bool accept_with_spare();
  void add_connection(boost::asio::ip::tcp::socket socket);
  void reject_connection(boost::asio::ip::tcp::socket socket);
  void close_connection(Connection* connection);
  void remove_connection(Connection* connection);
  void wait_for_signals();
  void drain();
  void close_all();
  void end_if_idle();

  boost::asio::io_context* io_;
  RequestHandler* handler_;
  const ServerOptions* options_;
  Logger* logger_;
  Events events_;
  ConnectionTable connections_;
  // A reserved descriptor, so that one more client can be accepted when no other descriptor is left.
  SpareDescriptor spare_;
  bool is_draining_ = false;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer deadline_;
};

}  // namespace quire
