#pragma once
// The jobs that are open: whose they are and which blocks they touch.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/transfer.h"

namespace quire {

class TransferJobs {
 public:
  struct Job {
    JobId id;
    RequestId request;
    TransferDirection direction = TransferDirection::load;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };

  TransferJobs(std::uint32_t num_blocks, std::uint32_t max_open) : max_open_(max_open), num_touching_(num_blocks, 0) {}

  // The job's id, and views that stay until it is closed; nullopt: as many are open as may be.
  std::optional<Transfer> open(const Transfer& transfer);
  // Null if no such job is open; valid until the next open() or close().
  [[nodiscard]] const Job* find(JobId id) const;
  // It must be open.
  void close(JobId id);

  // Of the jobs that the next open() makes.
  [[nodiscard]] JobId next_id() const { return next_id_; }
  [[nodiscard]] std::size_t num_open() const { return jobs_.size(); }
  // Open jobs that touch the block, loads from `first_new` on left out: appended to `fences` where they are not in it yet.
  void add_fences(BlockId block, JobId first_new, std::vector<JobId>& fences) const;

  // Stops the program if the books do not agree.
  void check_invariants() const;

 private:
  void count(const Job& job, std::int32_t by);

  std::uint32_t max_open_;
  JobId next_id_{0};
  std::vector<Job> jobs_;                    // open, by rising id
  std::vector<Job> spare_;                   // their memory is used again
  std::vector<std::uint32_t> num_touching_;  // open jobs, by block
};

}  // namespace quire
