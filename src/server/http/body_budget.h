#pragma once
// Limits the bytes of request bodies, for all connections together and for each client. A lease grows with the received bytes, not by the
// length that a header announces, so a body that does not arrive uses no budget.
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
  // An eighth of the budget is reserved for bodies of up to this size, so that large bodies cannot use up the whole budget.
  static constexpr std::uint64_t kSmallBodyBytes = 64 << 10;

  explicit BodyBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;

  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  // The bytes that the bodies of one client hold.
  struct Share {
    std::atomic<std::uint64_t> used_bytes{0};
  };
  // Returns the client's share. All calls for one client return the same object as long as a caller keeps it. Called on one thread only.
  [[nodiscard]] std::shared_ptr<Share> share_of(const std::string& client);

  // The bytes that one body holds. The destructor releases the bytes, on any thread. The budget must outlive the lease.
  class Lease {
   public:
    // By default, the lease counts as the only one of its client.
    explicit Lease(BodyBudget& budget, std::shared_ptr<Share> share = std::make_shared<Share>())
        : budget_(&budget), share_(std::move(share)) {}
    ~Lease() { release(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // Grows the lease to `bytes`. Returns false without a change in these cases:
    // - the budget does not have enough free bytes;
    // - the client has other bodies, and all its bodies together would hold more than twice the free bytes.
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

// The pace of a body: a grace period that time uses up, and that received bytes refill at the minimum rate.
class BodyPace {
 public:
  using Clock = std::chrono::steady_clock;

  // `rate` is the minimum number of bytes per second; 0: no minimum.
  BodyPace(std::uint32_t rate, std::chrono::milliseconds grace, Clock::time_point now)
      : rate_(rate), grace_(grace), deadline_(now + grace) {}

  void add(std::uint64_t bytes, Clock::time_point now);
  // Returns when the grace period ends if no more bytes arrive.
  [[nodiscard]] Clock::time_point ends() const { return rate_ == 0 ? Clock::time_point::max() : deadline_; }
  // Returns whether more than a fifth of the grace period is used up. A slow body may be cut off if other bodies need its bytes.
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
    std::function<void()> cut;  // ends the reader; called after its lease has been released
  };
  // Registers a reader during the lifetime of this object.
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

  // Grows the lease. If needed, cuts off slow bodies, the largest first, of clients that hold at least as many bytes as this client.
  // Returns false if the budget is still too small.
  [[nodiscard]] bool grow(BodyBudget::Lease& lease, std::uint64_t bytes, BodyPace::Clock::time_point now);

 private:
  std::list<Reader> list_;
};

}  // namespace quire
