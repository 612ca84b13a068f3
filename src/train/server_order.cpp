// The order of the servers' events: by arrival within the staleness bound, or from a record.
#include <trireme/train/server_order.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::train {

using Kind = ServerEvent::Kind;

ServerOrder::ServerOrder(int workers, std::int64_t staleness, ServerUpdates updates)
    : staleness_(staleness),
      by_push_(updates == ServerUpdates::push),
      asked_(static_cast<std::size_t>(workers)),
      sent_(asked_.size()),
      applied_(asked_.size()) {}

void ServerOrder::reset(std::int64_t step) {
  std::ranges::fill(asked_, 0);
  std::ranges::fill(sent_, step);
  std::ranges::fill(applied_, step);
  waiting_.clear();
  pushes_.clear();
  replayed_.reset();
}

void ServerOrder::replay(std::vector<ServerEvent> events) {
  std::erase_if(events, [&](const ServerEvent& event) { return event.step <= complete(); });
  replayed_.emplace(events.begin(), events.end());
}

void ServerOrder::asks(int worker, std::int64_t step) {
  asked_.at(static_cast<std::size_t>(worker)) = step;
  waiting_.push_back(worker);
}

void ServerOrder::pushed(int worker, std::int64_t step) {
  sent_.at(static_cast<std::size_t>(worker)) = step;
  pushes_.push_back({worker, step});
}

std::int64_t ServerOrder::complete() const {
  return std::ranges::min(applied_);
}

std::int64_t ServerOrder::updates() const {
  std::int64_t sum = 0;
  for (const std::int64_t step : applied_) sum += step;
  return by_push_ ? sum : complete();
}

/// Whether the event's messages have arrived, and for a fetch whether the staleness bound holds.
bool ServerOrder::is_possible(const ServerEvent& event) const {
  if (event.kind == Kind::fetch) {
    const std::int64_t asked = asked_.at(static_cast<std::size_t>(event.worker));
    check(asked == 0 || asked == event.step, "the replayed record sends worker ", event.worker,
          " weights for step ", event.step, ", but it asks for those of step ", asked,
          "; choose the record of a run with the same deck");
    return asked == event.step && lacks(event) <= staleness_;
  }
  if (event.worker >= 0) return sent_.at(static_cast<std::size_t>(event.worker)) >= event.step;
  return std::ranges::min(sent_) >= event.step;
}

std::optional<ServerEvent> ServerOrder::next_arrived() const {
  if (by_push_ && !pushes_.empty())
    return ServerEvent{Kind::update, pushes_.front().worker, pushes_.front().step};
  if (!by_push_ && std::ranges::min(sent_) > complete())
    return ServerEvent{Kind::update, -1, complete() + 1};
  for (const int worker : waiting_) {
    const ServerEvent fetch{Kind::fetch, worker, asked_[static_cast<std::size_t>(worker)]};
    if (lacks(fetch) <= staleness_) return fetch;
  }
  return std::nullopt;
}

std::optional<ServerEvent> ServerOrder::next(std::int64_t end) const {
  if (!replayed_) return next_arrived();
  check(!replayed_->empty(), "the replayed record ends with step ", complete(),
        "; set [run] steps = ", complete());
  const ServerEvent& event = replayed_->front();
  check(event.step <= end, "the replayed record begins step ", event.step, " before step ", end,
        " is complete, but this run logs, evaluates or saves step ", end,
        "; choose the log_every, evaluate_every and checkpoint.every of the recorded run");
  return is_possible(event) ? std::optional(event) : std::nullopt;
}

void ServerOrder::apply(const ServerEvent& event) {
  if (replayed_ && !replayed_->empty()) replayed_->pop_front();
  if (event.kind == Kind::fetch) {
    asked_.at(static_cast<std::size_t>(event.worker)) = 0;
    std::erase(waiting_, event.worker);
    return;
  }
  const auto is_applied = [&](const Pushed& push) {
    return push.step == event.step && (event.worker < 0 || push.worker == event.worker);
  };
  std::erase_if(pushes_, is_applied);
  if (event.worker >= 0)
    applied_.at(static_cast<std::size_t>(event.worker)) = event.step;
  else
    std::ranges::fill(applied_, event.step);
}

}  // namespace trireme::train
