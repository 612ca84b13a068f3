// layout = "auto": the open keys, the possible sizes of the axes, and the chosen values.
#include <trireme/deck/layout.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::deck {
namespace {

constexpr std::string_view chosen_place = "layout = \"auto\"";

/// The largest number that divides every size of the global batch.
std::int64_t common_batch(const BatchConfig& b) {
  std::int64_t common = b.global;
  if (b.ramp_start > 0) common = std::gcd(common, b.ramp_start);
  if (b.ramp_increment > 0 && ramp_sizes(b) > 2) common = std::gcd(common, b.ramp_increment);
  return common;
}

/// Bounds of the size of an axis; least = most if the deck fixes the size.
struct Bounds {
  std::int64_t least = 1;
  std::int64_t most = 1;
  bool contains(std::int64_t size) const { return least <= size && size <= most; }
};

class Possible {
 public:
  explicit Possible(const Deck& deck) {
    const auto bounds = [&](const char* section, const char* name, std::int64_t value,
                            std::int64_t most) {
      return is_fixed(deck, section, name) ? Bounds{value, value} : Bounds{1, most};
    };
    const Config& c = deck.config;
    const ModelConfig& m = c.model;
    const std::int64_t parts = m.most_tensor_ranks();
    common_ = common_batch(c.batch);
    sequence_ = m.sequence;
    tensor_ = bounds("parallel", "tensor", c.parallel.tensor, parts);
    data_ = bounds("parallel", "data", c.parallel.data, common_);
    micros_ = is_fixed(deck, "batch", "micro") ? std::vector{c.batch.micro} : divisors(common_);
    std::int64_t chunks = 1;
    if (is_fixed(deck, "parallel", "chunks"))
      chunks = c.parallel.chunks;
    else if (is_fixed(deck, "parallel", "schedule"))
      chunks = schedule::schedule_of(c.parallel.schedule).least_chunks;
    const std::int64_t stages = std::min(stages_limit, std::max(m.all_layers(), chunks));
    pipeline_ = bounds("parallel", "pipeline", c.parallel.pipeline, stages / chunks);
  }

  /// Divisor of every possible rank count: the product of the fixed axes.
  std::int64_t unit() const { return tensor_.least * pipeline_.least * data_.least; }
  std::int64_t most() const {
    const double product = static_cast<double>(tensor_.most) * static_cast<double>(pipeline_.most) *
                           static_cast<double>(data_.most);
    return product < static_cast<double>(ranks_limit) ? static_cast<std::int64_t>(product)
                                                      : ranks_limit;
  }

  std::vector<Axes> of(std::int64_t ranks) const {
    std::vector<Axes> found;
    if (ranks % unit() != 0) return found;
    const std::vector<std::int64_t> sizes = divisors(ranks);
    for (auto data = sizes.rbegin(); data != sizes.rend(); ++data) {
      if (!data_.contains(*data) || common_ % *data != 0) continue;
      for (auto tensor = sizes.rbegin(); tensor != sizes.rend(); ++tensor) {
        const std::int64_t model_ranks = ranks / *data;
        if (!tensor_.contains(*tensor) || model_ranks % *tensor != 0) continue;
        const Axes axes{*tensor, model_ranks / *tensor, *data, micro_of(*tensor, *data)};
        if (axes.micro > 0 && pipeline_.contains(axes.pipeline)) found.push_back(axes);
      }
    }
    return found;
  }

 private:
  /// The smallest possible micro-batch with a token for each tensor rank; 0: none.
  std::int64_t micro_of(std::int64_t tensor, std::int64_t data) const {
    for (const std::int64_t micro : micros_)
      if (common_ / data % micro == 0 && micro * sequence_ >= tensor) return micro;
    return 0;
  }

  Bounds tensor_, pipeline_, data_;
  std::vector<std::int64_t> micros_;
  std::int64_t common_ = 1;
  std::int64_t sequence_ = 1;
};

/// At most four rank counts near `ranks` that have a layout, ascending.
std::vector<std::int64_t> fitting_ranks(const Possible& possible, std::int64_t ranks) {
  constexpr std::int64_t tries = 1000;
  constexpr std::size_t each_side = 2;
  const std::int64_t unit = possible.unit();
  std::vector<std::int64_t> found;
  const auto search = [&](std::int64_t n, std::int64_t step) {
    const std::size_t enough = found.size() + each_side;
    for (std::int64_t i = 0; i < tries && found.size() < enough; ++i, n += step) {
      if (n < 1 || n > ranks_limit) return;
      if (!possible.of(n).empty()) found.push_back(n);
    }
  };
  const std::int64_t from = std::min(ranks, possible.most()) / unit;
  search(from * unit, -unit);
  search((from + 1) * unit, unit);
  std::ranges::sort(found);
  return found;
}

std::string cited(const Deck& deck, const std::vector<const Key*>& keys) {
  std::vector<std::string> parts;
  for (const Key* key : keys) parts.push_back(deck.cite(key->section, key->name));
  return join(parts, ", ");
}

std::vector<const Key*> fixed(const Deck& deck) {
  std::vector<const Key*> keys;
  for (const Key* key : layout_keys())
    if (is_fixed(deck, key->section, key->name)) keys.push_back(key);
  return keys;
}

}  // namespace

const std::vector<const Key*>& layout_keys() {
  static const std::vector<const Key*> all = [] {
    std::vector<const Key*> keys;
    for (const char* name : {"tensor", "pipeline", "data", "schedule", "chunks",
                             "sequence_parallel", "recompute", "shard", "shard_group", "expert"})
      keys.push_back(find_key("parallel", name));
    keys.push_back(find_key("batch", "micro"));
    return keys;
  }();
  return all;
}

bool is_fixed(const Deck& deck, std::string_view section, std::string_view name) {
  if (section == "parallel" && name == "data" && deck.config.parallel.data == 0) return false;
  const auto place = deck.places.find(text(section, ".", name));
  return place != deck.places.end() && place->second != chosen_place;
}

bool is_open(const Deck& deck, std::string_view section, std::string_view name) {
  if (deck.config.parallel.layout != LayoutMode::automatic) return false;
  const auto is_key = [&](const Key* key) { return key->section == section && key->name == name; };
  return std::ranges::any_of(layout_keys(), is_key) && !is_fixed(deck, section, name);
}

std::vector<std::string> fixed_keys(const Deck& deck) {
  std::vector<std::string> names;
  for (const Key* key : fixed(deck)) names.push_back(key->full_name());
  return names;
}

std::vector<std::string> layout_mistakes(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  if (p.layout != LayoutMode::automatic) return {};
  std::vector<std::string> mistakes;
  const bool file = p.reads_program();
  if (p.searches_program())
    mistakes.push_back(text(deck.cite("parallel", "layout"), " cannot be combined with ",
                            deck.cite("parallel", "schedule"),
                            ", because it compares named schedules; choose layout = \"given\", or "
                            "remove schedule"));
  if (p.overlaps_steps())
    mistakes.push_back(text(deck.cite("parallel", "layout"), " cannot be combined with ",
                            deck.cite("parallel", "schedule"),
                            ", which delays gradients and so changes losses; choose layout = "
                            "\"given\", or remove schedule"));
  if (file || !p.program.empty())
    mistakes.push_back(text(deck.cite("parallel", "layout"), " cannot be combined with ",
                            deck.cite("parallel", file ? "schedule" : "program"),
                            ", because a program file has a fixed number of stages and "
                            "micro-batches; choose layout = \"given\", or remove ",
                            file ? "schedule" : "program"));
  const std::int64_t common = common_batch(b);
  if (is_fixed(deck, "parallel", "data") && common % b.micro == 0 && common / b.micro % p.data != 0)
    mistakes.push_back(
        text(deck.cite("parallel", "data"),
             is_fixed(deck, "batch", "micro") ? text(" · ", deck.cite("batch", "micro")) : "",
             " does not divide ", common == b.global ? "" : "every size of ",
             deck.cite("batch", "global"), "; choose data of ",
             choices(divisors(common / b.micro), p.data), ", or leave it out"));
  return mistakes;
}

std::vector<Axes> possible_axes(const Deck& deck, std::int64_t ranks) {
  return Possible(deck).of(ranks);
}

void expect_layout(const Deck& deck, std::int64_t ranks) {
  const Possible possible(deck);
  if (!possible.of(ranks).empty()) return;
  const std::vector<std::int64_t> fitting = fitting_ranks(possible, ranks);
  const std::vector<const Key*> kept = fixed(deck);
  throw UsageError(text(
      deck.cite("parallel", "layout"), ": no layout fits ", ranks, ranks == 1 ? " rank" : " ranks",
      " with ", deck.cite("batch", "global"), kept.empty() ? "" : ", " + cited(deck, kept), "; ",
      fitting.empty() ? "" : text("start ", choices(fitting, ranks), " ranks, or "),
      kept.empty() ? "choose another global batch" : "remove keys that the deck need not fix"));
}

std::vector<std::string> layout_overrides(const Deck& deck) {
  std::vector<std::string> out;
  for (const Key* key : layout_keys())
    out.push_back(text(key->full_name(), "=", literal(*key, key->load(deck.config))));
  return out;
}

void set_layout(Deck& deck, const std::vector<std::string>& overrides, const std::string& reason) {
  check(!reason.empty(), "a layout is chosen without a reason");
  for (const std::string& written : overrides) {
    const std::size_t equals = written.find('=');
    const auto key = std::ranges::find_if(
        layout_keys(), [&](const Key* k) { return k->full_name() == written.substr(0, equals); });
    check(equals != std::string::npos && key != layout_keys().end(), "\"", written,
          "\" does not set a key of the layout");
    std::string problem;
    const auto value = accept_text(**key, written.substr(equals + 1), problem);
    check(value.has_value(), written, ": ", problem);
    const bool fixed = is_fixed(deck, (*key)->section, (*key)->name);
    check(!fixed || (*key)->load(deck.config) == *value, written, " changes ",
          deck.cite((*key)->section, (*key)->name));
    if (!fixed) deck.places[(*key)->full_name()] = chosen_place;
    (*key)->store(deck.config, *value);
  }
  deck.config.parallel.layout = LayoutMode::given;
  deck.layout_reason = reason;
  Diagnostics diagnostics(deck.file_name, "");
  cross_check(deck, {}, diagnostics);
  diagnostics.throw_if_any();
}

}  // namespace trireme::deck
