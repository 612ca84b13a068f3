// Memory of arenas that replicas divide: resident arrays, own parts of other arrays, and windows
// that whole layers use in turn. See Arrangement.
#include <trireme/architecture/arrangement.hpp>

#include <trireme/base/alignment.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>
#include <utility>

namespace trireme::architecture {
namespace {

constexpr int ends_window = 0;

}  // namespace

Division division_of(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const bool one_pass =
      p.pipeline == 1 && config.micro_batches() == 1 && schedule::traits_of(p.schedule).is_plain;
  return {p.divides_weights(),
          p.divides_gradients() && one_pass && config.model.shared_layers == 0};
}

/// Arrays of shared layers and of a shared vocabulary stay whole, because many passes use them.
Arrangement arranged_weights(const BucketCut& cut, const Division& division, int data_rank) {
  const std::int64_t end = cut.placement().elements;
  if (!division.weights) return Arrangement(end);
  return {cut, data_rank, end,
          [](const GradientRange& range) { return !range.shared && !range.of_vocabulary; }};
}

/// Gradients that tensor ranks sum afterwards stay whole; they are small.
Arrangement arranged_gradients(const BucketCut& cut, const Shard& shard, const Division& division,
                               bool cuts_tokens, int data_rank) {
  const std::int64_t end = cut.placement().gradient_elements;
  if (!division.gradients) return Arrangement(end);
  return {cut, data_rank, end, [&](const GradientRange& range) {
            return shard.tensor_size == 1 || range.split || !(cuts_tokens || range.partial);
          }};
}

Arrangement::Arrangement(const BucketCut& cut, int data_rank, std::int64_t end,
                         const std::function<bool(const GradientRange&)>& takes_turns) {
  find_runs(cut, end, takes_turns);
  has_windows_ = std::ranges::any_of(runs_, &Run::takes_turns);
  const std::int64_t own = has_windows_ ? most_own_elements(cut, end, takes_turns) : 0;
  place_runs(own);
  std::int64_t resident = 0;
  for (const Run& run : runs_)
    if (!run.takes_turns) resident = std::max(resident, aligned_elements(run.place + run.size()));
  if (has_windows_) find_own(cut, data_rank, resident);
}

void Arrangement::find_runs(const BucketCut& cut, std::int64_t end,
                            const std::function<bool(const GradientRange&)>& takes_turns) {
  std::vector<std::int64_t> blocks;
  cut.visit_groups([&](std::span<const GradientRange> ranges) {
    if (ranges.front().begin >= end) return;
    runs_.push_back({ranges.front().begin, ranges.back().end, 0, 0, takes_turns(ranges.front())});
    blocks.push_back(ranges.front().block);
  });
  const std::int64_t first = 0, last = cut.layers() + 1;  // embedding and head
  const auto has = [&](std::int64_t block) {
    return std::ranges::find(blocks, block) != blocks.end();
  };
  const bool one = cut.tied() && has(first) && has(last);
  std::vector<std::int64_t> known = blocks;
  if (one) std::ranges::replace(known, last, first);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const auto found = std::ranges::find(units_, known[i], &Unit::block);
    runs_[i].unit = static_cast<int>(found - units_.begin());
    if (found == units_.end()) units_.push_back({known[i], -1});
  }
  if (one)
    alias_ = {last,
              static_cast<int>(std::ranges::find(units_, first, &Unit::block) - units_.begin())};
  // Consecutive layers of the rank use different windows.
  std::vector<Unit*> ordered;
  for (const Run& run : runs_)
    if (run.takes_turns) units_[static_cast<std::size_t>(run.unit)].window = ends_window;
  for (Unit& unit : units_)
    if (unit.window >= 0 && unit.block > first && unit.block < last) ordered.push_back(&unit);
  std::ranges::sort(ordered, {}, &Unit::block);
  for (std::size_t i = 0; i < ordered.size(); ++i) ordered[i]->window = 1 + static_cast<int>(i % 2);
}

/// Places the resident runs, then the own parts, then the windows. Each window is as large as the
/// largest unit that uses it.
void Arrangement::place_runs(std::int64_t own_elements) {
  std::int64_t at = 0;
  for (Run& run : runs_)
    if (!run.takes_turns) {
      run.place = aligned_elements(at);
      at = run.place + run.size();
    }
  at = aligned_elements(at) + own_elements;
  for (int window = 0; window < 3; ++window) {
    std::int64_t most = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].window != window) continue;
      std::int64_t used = 0;
      for (Run& run : runs_)
        if (run.unit == static_cast<int>(u) && run.takes_turns) {
          run.place = at + used;
          used += aligned_elements(run.size());
        }
      most = std::max(most, used);
    }
    at += most;
  }
  elements_ = aligned_elements(at);
}

void Arrangement::find_own(const BucketCut& cut, int data_rank, std::int64_t own_begin) {
  cut.visit([&](const BucketRun& bucket) {
    const Run* run = run_of(bucket.begin);
    if (run == nullptr || !run->takes_turns) return;
    const int owner = bucket.owner(data_rank);
    const std::int64_t first = bound_of(bucket, owner), last = bound_of(bucket, owner + 1);
    for (std::int64_t i = 0; i < bucket.count && first < last; ++i)
      own_.push_back({first - i * bucket.size(), last - i * bucket.size(), 0});
  });
  std::ranges::sort(own_, {}, &Own::begin);
  // Adjacent parts of a run are joined, so that each block of the optimizer's state is contiguous.
  std::vector<Own> joined;
  for (const Own& own : own_)
    if (!joined.empty() && joined.back().end == own.begin && run_of(own.begin)->begin < own.begin)
      joined.back().end = own.end;
    else
      joined.push_back(own);
  own_ = std::move(joined);
  for (Own& own : own_) {
    own.place = own_begin;
    own_begin += aligned_elements(own.end - own.begin);
  }
}

const Arrangement::Run* Arrangement::run_of(std::int64_t at) const {
  const auto after =
      std::ranges::partition_point(runs_, [&](const Run& run) { return run.begin <= at; });
  if (after == runs_.begin()) return nullptr;
  const Run& run = *(after - 1);
  return at < run.end ? &run : nullptr;
}

std::int64_t Arrangement::place(std::int64_t at) const {
  if (runs_.empty()) return at;
  const Run* run = run_of(at);
  check(run != nullptr, "element ", at, " of an arena belongs to no array");
  return run->place + (at - run->begin);
}

std::int64_t Arrangement::own_place(std::int64_t at) const {
  if (runs_.empty()) return at;
  const Run* run = run_of(at);
  check(run != nullptr, "element ", at, " of an arena belongs to no array");
  if (!run->takes_turns) return run->place + (at - run->begin);
  const auto after =
      std::ranges::partition_point(own_, [&](const Own& own) { return own.begin <= at; });
  check(after != own_.begin() && at < (after - 1)->end, "element ", at,
        " of an arena belongs to another replica");
  return (after - 1)->place + (at - (after - 1)->begin);
}

std::vector<Arrangement::Own> Arrangement::kept(std::int64_t begin, std::int64_t end) const {
  if (begin >= end) return {};
  if (runs_.empty()) return {{begin, end, begin}};
  std::vector<Own> parts;
  for (const Run& run : runs_) {
    const std::int64_t from = std::max(begin, run.begin), to = std::min(end, run.end);
    if (from < to && !run.takes_turns) parts.push_back({from, to, run.place + (from - run.begin)});
  }
  for (const Own& own : own_) {
    const std::int64_t from = std::max(begin, own.begin), to = std::min(end, own.end);
    if (from < to) parts.push_back({from, to, own.place + (from - own.begin)});
  }
  std::ranges::sort(parts, {}, &Own::begin);
  return parts;
}

int Arrangement::unit_of(std::int64_t block) const {
  if (alias_.second >= 0 && block == alias_.first) return alias_.second;
  const auto found = std::ranges::find(units_, block, &Unit::block);
  return found == units_.end() ? -1 : static_cast<int>(found - units_.begin());
}

std::int64_t most_own_elements(const BucketCut& cut, std::int64_t end,
                               const std::function<bool(const GradientRange&)>& takes_turns) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(cut.data_ranks()));
  cut.visit([&](const BucketRun& run) {
    if (run.begin >= end || !takes_turns(run.ranges.front())) return;
    visit_parts(run, [&](int owner, std::int64_t first, std::int64_t last) {
      const std::int64_t elements = run.count * aligned_elements(last - first);
      cut.for_ranks(run, owner,
                    [&](int rank) { sums[static_cast<std::size_t>(rank)] += elements; });
    });
  });
  return std::ranges::max(sums);
}

bool WindowTurns::holds(int unit) const {
  const int window = arrangement_->units()[static_cast<std::size_t>(unit)].window;
  return window < 0 || holders_[static_cast<std::size_t>(window)] == unit;
}

int WindowTurns::take(int unit) {
  const int window = arrangement_->units()[static_cast<std::size_t>(unit)].window;
  if (window < 0) return -1;
  return std::exchange(holders_[static_cast<std::size_t>(window)], unit);
}

}  // namespace trireme::architecture
