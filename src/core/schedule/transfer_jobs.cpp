#include "core/schedule/transfer_jobs.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

std::optional<Transfer> TransferJobs::open(const Transfer& transfer) {
  QUIRE_CHECK(transfer.blocks.size() == transfer.places.size(), "each block has its place");
  if (jobs_.size() >= max_open_) return std::nullopt;
  Job job;
  if (!spare_.empty()) {
    job = std::move(spare_.back());
    spare_.pop_back();
  }
  job.id = next_id_;
  job.request = transfer.request;
  job.direction = transfer.direction;
  job.blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  job.places.assign(transfer.places.begin(), transfer.places.end());
  ++next_id_.value;
  count(job, 1);
  const Job& kept = jobs_.emplace_back(std::move(job));
  Transfer opened = transfer;
  opened.job = kept.id;
  opened.blocks = kept.blocks;
  opened.places = kept.places;
  return opened;
}

const TransferJobs::Job* TransferJobs::find(JobId id) const {
  const auto found = std::ranges::lower_bound(jobs_, id, {}, &Job::id);
  return found != jobs_.end() && found->id == id ? &*found : nullptr;
}

void TransferJobs::close(JobId id) {
  const auto found = std::ranges::lower_bound(jobs_, id, {}, &Job::id);
  QUIRE_CHECK(found != jobs_.end() && found->id == id, "only an open job is closed");
  count(*found, -1);
  spare_.push_back(std::move(*found));
  jobs_.erase(found);
}

void TransferJobs::add_fences(BlockId block, JobId first_new, std::vector<JobId>& fences) const {
  if (num_touching_[block.value] == 0) return;
  for (const Job& job : jobs_) {
    const bool begins_behind = job.id >= first_new && job.direction == TransferDirection::load;
    if (!begins_behind && std::ranges::find(job.blocks, block) != job.blocks.end() && std::ranges::find(fences, job.id) == fences.end())
      fences.push_back(job.id);
  }
}

void TransferJobs::count(const Job& job, std::int32_t by) {
  for (const BlockId block : job.blocks) {
    QUIRE_CHECK(block != kNullBlock && block.value < num_touching_.size(), "a block of the pool");
    num_touching_[block.value] += static_cast<std::uint32_t>(by);
  }
}

void TransferJobs::check_invariants() const {
  std::vector<std::uint32_t> touching(num_touching_.size(), 0);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    QUIRE_CHECK(jobs_[i].id < next_id_ && (i == 0 || jobs_[i - 1].id < jobs_[i].id), "jobs are in order");
    for (const BlockId block : jobs_[i].blocks) ++touching[block.value];
  }
  QUIRE_CHECK(touching == num_touching_ && jobs_.size() <= max_open_, "the jobs of each block are counted");
}

}  // namespace quire
