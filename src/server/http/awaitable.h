#pragma once
// Completion token for coroutines that handle errors as values.
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/error_code.hpp>

namespace quire {

// Returns a completion token for co_await. The operation stores its error in `code` instead of throwing.
inline auto into(boost::system::error_code& code) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, code);
}

}  // namespace quire
