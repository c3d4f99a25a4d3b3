#include "tickets.h"

#include <iterator>

#include "tenon/core/error.h"

namespace tenon {

Ticket Tickets::add(std::unique_ptr<Sequence> sequence) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = ++last_;
  sequence->id = id;
  open_.emplace(id, std::nullopt);
  joining_.push_back(std::move(sequence));
  return Ticket{id};
}

void Tickets::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(static_cast<uint64_t>(ticket));
  if (found != open_.end() && !found->second) cancelled_.push_back(ticket);
}

bool Tickets::done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(static_cast<uint64_t>(ticket));
  return found == open_.end() || found->second.has_value();
}

std::optional<Result> Tickets::take(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(static_cast<uint64_t>(ticket));
  if (found == open_.end()) {
    throw Error(ErrorCode::kUsage, "take(): ticket " + std::to_string(static_cast<uint64_t>(ticket)) +
                                       " is of no request, or its result was taken");
  }
  if (!found->second) return {};
  std::optional<Result> result = std::move(found->second);
  open_.erase(found);
  return result;
}

void Tickets::collect(std::vector<std::unique_ptr<Sequence>>& joining, std::vector<Ticket>& cancelled) {
  const std::lock_guard lock(mutex_);
  joining.insert(joining.end(), std::make_move_iterator(joining_.begin()), std::make_move_iterator(joining_.end()));
  cancelled.insert(cancelled.end(), cancelled_.begin(), cancelled_.end());
  joining_.clear();
  cancelled_.clear();
}

bool Tickets::anything_new() const {
  const std::lock_guard lock(mutex_);
  return !joining_.empty() || !cancelled_.empty();
}

void Tickets::finish(Ticket ticket, std::optional<Result> result) {
  const std::lock_guard lock(mutex_);
  if (result) {
    open_[static_cast<uint64_t>(ticket)] = std::move(result);
  } else {
    open_.erase(static_cast<uint64_t>(ticket));
  }
}

}  // namespace tenon
