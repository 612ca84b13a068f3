// Checks a ramp-up of the global batch: its keys are complete, the increment leads from ramp_start
// to global, and micro · data divides every size. Messages list the values that fit.
#include <trireme/deck/ramp_check.hpp>

#include <trireme/base/text.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/choices.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::deck {
namespace {

constexpr std::int64_t sizes_limit = 1024;  // each size has its own program

std::string cite(const Deck& deck, const char* key) {
  return deck.cite("batch", key);
}

/// "[batch] micro = 2 (a.toml:8) · [parallel] data = 4 (a.toml:9) = 8"
std::string round_text(const Deck& deck, std::int64_t data, std::int64_t round) {
  if (data == 0) return cite(deck, "micro");
  return text(cite(deck, "micro"), " · ", deck.cite("parallel", "data"), " = ", round);
}

/// Increments that lead from ramp_start to global by multiples of `round`.
std::string increments(const BatchConfig& b, std::int64_t round, std::int64_t wanted) {
  std::vector<std::int64_t> found = divisors((b.global - b.ramp_start) / round);
  for (std::int64_t& d : found) d *= round;
  return choices(found, wanted);
}

/// Multiples of `round` from which ramp_increment leads to global.
std::string starts(const BatchConfig& b, std::int64_t round) {
  constexpr std::int64_t each_side = 6;
  const std::int64_t stride = std::lcm(b.ramp_increment, round);
  const std::int64_t nearest = (b.global - b.ramp_start) / stride;
  const std::int64_t last = std::max<std::int64_t>(0, nearest - each_side);
  std::vector<std::int64_t> found;
  for (std::int64_t k = std::min(nearest + each_side, (b.global - 1) / stride); k >= last; --k)
    found.push_back(b.global - k * stride);
  return choices(found, b.ramp_start);
}

/// Values of micro or data that divide every global batch.
std::string dividing(const Deck& deck, std::int64_t data) {
  const BatchConfig& b = deck.config.batch;
  std::int64_t common = std::gcd(b.global, b.ramp_start);
  if (ramp_sizes(b) > 2) common = std::gcd(common, b.ramp_increment);
  if (data == 0) return text("a micro of ", choices(divisors(common), b.micro));
  return text("data of ", choices(divisors(common / b.micro), data));
}

/// A missing key of the ramp-up, or one without a ramp-up; "" if there is none.
std::string incomplete(const Deck& deck) {
  const BatchConfig& b = deck.config.batch;
  if (b.ramp_start == 0) {
    const char* key = b.ramp_increment > 0 ? "ramp_increment" : "ramp_samples";
    return b.ramp_increment == 0 && b.ramp_samples == 0
               ? ""
               : text(cite(deck, key), " has no effect without a ramp-up, but the deck has ",
                      cite(deck, "ramp_start"), "; choose a ramp_start of 1 or more, or remove ",
                      key);
  }
  if (b.ramp_start > b.global)
    return text(cite(deck, "ramp_start"), " is larger than ", cite(deck, "global"),
                "; choose a ramp_start of at most ", b.global);
  const char* missing = b.ramp_increment == 0 ? "ramp_increment" : "ramp_samples";
  if (b.ramp_start < b.global && (b.ramp_increment == 0 || b.ramp_samples == 0))
    return text(cite(deck, "ramp_start"), " needs ", cite(deck, missing),
                " to be 1 or more; set it, or remove ramp_start");
  return "";
}

}  // namespace

std::string ramp_mistake(const Deck& deck, std::int64_t data) {
  const BatchConfig& b = deck.config.batch;
  if (std::string mistake = incomplete(deck); !mistake.empty()) return mistake;
  if (b.ramp_start == 0 || b.ramp_start == b.global) return "";
  const std::int64_t way = b.global - b.ramp_start;
  if (way % b.ramp_increment != 0)
    return text(cite(deck, "ramp_increment"), " does not divide the ", way, " samples between ",
                cite(deck, "ramp_start"), " and ", cite(deck, "global"),
                "; choose a ramp_increment of ", choices(divisors(way), b.ramp_increment));
  const std::int64_t sizes = ramp_sizes(b);
  if (sizes > sizes_limit)
    return text(cite(deck, "ramp_increment"), " gives ", sizes, " sizes from ",
                cite(deck, "ramp_start"), " to ", cite(deck, "global"), ", more than ", sizes_limit,
                "; choose a ramp_increment of at least ",
                (way + sizes_limit - 2) / (sizes_limit - 1));
  const std::int64_t round = b.micro * std::max<std::int64_t>(1, data);
  if (b.ramp_start % round != 0)
    return text(cite(deck, "ramp_start"), " is not a multiple of ", round_text(deck, data, round),
                "; choose a ramp_start of ", starts(b, round), ", or ", dividing(deck, data));
  if (sizes > 2 && b.ramp_increment % round != 0)
    return text("the global batch of ", b.ramp_start + b.ramp_increment, " samples, ",
                cite(deck, "ramp_start"), " + ", cite(deck, "ramp_increment"),
                ", is not a multiple of ", round_text(deck, data, round),
                "; choose a ramp_increment of ", increments(b, round, b.ramp_increment), ", or ",
                dividing(deck, data));
  if (deck.config.parallel.schedule == ScheduleKind::file)
    return text(deck.cite("parallel", "schedule"), " runs one program for one size of the global ",
                "batch, but the deck has ", cite(deck, "ramp_start"),
                "; remove ramp_start, or choose another schedule");
  return "";
}

}  // namespace trireme::deck
