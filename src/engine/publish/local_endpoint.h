#pragma once
#include <string>

namespace quire {

// Returns a ZeroMQ address in a form that this machine can bind; empty if the address belongs to another machine. ipc://, inproc://, and
// tcp:// with *, an IP address of this machine or a network interface stay unchanged. A host name of this machine is replaced by its
// address. A name look-up may wait for a name server.
std::string bindable_endpoint(const std::string& endpoint);

}  // namespace quire
