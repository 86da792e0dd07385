#pragma once
// Bounds the bytes of request bodies that all connections and each client may hold. A lease grows by the bytes received, never by the
// length that a header announces: a body that does not arrive costs nothing.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace quire {

class BodyBudget {
 public:
  // An eighth of the budget is reserved for bodies of up to this size, so that large bodies cannot keep out the others.
  static constexpr std::uint64_t kSmallBodyBytes = 64 << 10;

  explicit BodyBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;

  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  // Bytes that the bodies of one client hold.
  struct Share {
    std::atomic<std::uint64_t> used_bytes{0};
  };
  // Returns the client's share. Calls for one client return the same object while any caller keeps it. Called on one thread only.
  [[nodiscard]] std::shared_ptr<Share> share_of(const std::string& client);

  // The bytes that one body holds. They are given back when the lease is destroyed, on any thread. The budget must outlive the lease.
  class Lease {
   public:
    // By default the body counts as the only one of its client.
    explicit Lease(BodyBudget& budget, std::shared_ptr<Share> share = std::make_shared<Share>())
        : budget_(&budget), share_(std::move(share)) {}
    ~Lease() { release(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // Returns false, and changes nothing, if there is no room, or if the client's bodies would hold more than twice the remaining bytes. A
    // client's only body just needs room.
    [[nodiscard]] bool grow_to(std::uint64_t bytes);
    void release();

    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] const Share* share() const { return share_.get(); }

   private:
    BodyBudget* budget_;
    std::shared_ptr<Share> share_;
    std::uint64_t bytes_ = 0;
  };

 private:
  std::uint64_t total_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::map<std::string, std::weak_ptr<Share>> shares_;
  std::size_t sweep_threshold_ = 64;
};

// The pace of a body: a grace period that runs down with time, and is filled up by received bytes at the minimum rate.
class BodyPace {
 public:
  using Clock = std::chrono::steady_clock;

  // `rate`: minimum bytes per second; 0: no minimum.
  BodyPace(std::uint32_t rate, std::chrono::milliseconds grace, Clock::time_point now)
      : rate_(rate), grace_(grace), deadline_(now + grace) {}

  void add(std::uint64_t bytes, Clock::time_point now);
  // Returns when the body becomes too slow if nothing arrives until then.
  [[nodiscard]] Clock::time_point ends() const { return rate_ == 0 ? Clock::time_point::max() : deadline_; }
  // Returns true if the body has been slower than the rate for a fifth of the grace period. It is then cut off if others need its room.
  [[nodiscard]] bool is_slow(Clock::time_point now) const { return deadline_ < now + grace_ * 4 / 5; }

 private:
  std::uint32_t rate_;
  std::chrono::milliseconds grace_;
  Clock::time_point deadline_;
};

// The bodies that are being received. Used on the server's thread only.
class BodyReaders {
 public:
  struct Reader {
    BodyBudget::Lease& lease;
    BodyPace& pace;
    std::function<void()> cut;  // ends the reader, after its lease has been given back
  };
  // Registers a reader for as long as this object lives.
  class Entry {
   public:
    Entry(BodyReaders& readers, Reader reader) : readers_(&readers), at_(readers.list_.insert(readers.list_.end(), std::move(reader))) {}
    ~Entry() { readers_->list_.erase(at_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    BodyReaders* readers_;
    std::list<Reader>::iterator at_;
  };

  // Grows the lease. If needed, cuts off slow bodies of clients that hold at least as much as this client, the largest body first. Returns
  // false if there is still no room.
  [[nodiscard]] bool grow(BodyBudget::Lease& lease, std::uint64_t bytes, BodyPace::Clock::time_point now);

 private:
  std::list<Reader> list_;
};

}  // namespace quire
