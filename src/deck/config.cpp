// The axes and the stages of a deck's layout.
#include <trireme/deck/config.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace trireme::deck {
namespace {

struct AxisKey {
  Axis axis;
  std::int64_t ParallelConfig::*size;
};

/// The sizes of the axes, in the default order (layout::axis_table).
constexpr std::array<AxisKey, axis_count> axis_keys{{
    {Axis::tensor, &ParallelConfig::tensor},
    {Axis::context, &ParallelConfig::context},
    {Axis::pipeline, &ParallelConfig::pipeline},
    {Axis::data, &ParallelConfig::data},
}};

}  // namespace

std::optional<RateFactor> rate_factor_of(std::string_view words) {
  const std::size_t space = words.find(' ');
  if (space == std::string_view::npos) return {};
  RateFactor found;
  const char* end = words.data() + space;
  const auto [at, error] = std::from_chars(words.data(), end, found.factor);
  words.remove_prefix(std::min(words.find_first_not_of(' ', space), words.size()));
  found.pattern = words;
  const bool is_factor = error == std::errc() && at == end && std::isfinite(found.factor);
  if (!is_factor || found.factor <= 0 || words.empty() || words.find(' ') != words.npos) return {};
  return found;
}

ModelConfig ModelConfig::of_source() const {
  if (!vision.present()) return *this;
  const bool clip = vision.family == VisionFamily::clip;
  ModelConfig m;
  m.encoder.layers = vision.layers;
  m.encoder.sequence = m.sequence = vision.rows();
  m.encoder.first_norm = clip;
  m.encoder.final_norm = vision.has_final_norm();
  m.hidden = vision.hidden;
  m.heads = m.key_value_heads = vision.heads;
  m.feed_forward = vision.feed_forward;
  m.norm_epsilon = clip ? 1e-5 : 1e-6;
  m.gelu = clip ? Gelu::quick : Gelu::tanh;
  m.vocabulary = vocabulary;
  m.frozen = frozen;
  m.adapter = adapter;
  return m;
}

layout::AxisList ParallelConfig::sizes() const {
  std::array<layout::AxisSize, axis_count> all;
  for (std::size_t i = 0; i < axis_count; ++i) {
    all[i] = {axis_keys[i].axis, this->*axis_keys[i].size};
    if (all[i].axis == Axis::data && data > 0) all[i].size += server_places();
  }
  return layout::AxisList(all);
}

layout::AxisList ParallelConfig::axes(std::string_view fallback) const {
  std::string problem;
  const auto named = layout::parse_order(order.empty() ? fallback : order, problem);
  check(named.has_value(), "[parallel] order = \"", order, "\": ", problem);
  const layout::AxisList unordered = sizes();
  std::array<layout::AxisSize, axis_count> all;
  for (std::size_t i = 0; i < axis_count; ++i) all[i] = {(*named)[i], unordered.size((*named)[i])};
  return layout::AxisList(all);
}

namespace {

/// Whether neighbouring replicas have different samples. Replicas are in the order of the ranks:
/// see Grid::replicas().
bool data_is_first(const ParallelConfig& p) {
  const layout::AxisList all = p.axes();
  return all.stride(Axis::data) < all.stride(Axis::context);
}

/// Data ranks of a worker.
std::int64_t data_of_worker(const ParallelConfig& p) {
  return std::max<std::int64_t>(1, p.data / p.worker_groups());
}

}  // namespace

std::int64_t ParallelConfig::expert_batches() const {
  if (data_is_first(*this)) return std::min(expert, data_of_worker(*this));
  if (context % expert == 0) return 1;
  if (expert % context == 0) return expert / context;
  return std::min(expert, (expert + context - 2) / context + 1);
}

int ParallelConfig::expert_rank(const layout::Coordinates& at) const {
  if (expert == 1) return 0;
  const bool data_first = data_is_first(*this);
  const std::int64_t of_worker = data_of_worker(*this);
  const std::int64_t sample = at[Axis::data] % of_worker, part = at[Axis::context];
  const std::int64_t replica = data_first ? part * of_worker + sample : sample * context + part;
  return static_cast<int>(replica % expert);
}

layout::StageMap ParallelConfig::stage_map() const {
  StagePlacement chosen = placement;
  if (chosen == StagePlacement::automatic) {
    const bool searched_in_v = searches_program() && chunks == 2;
    chosen = searched_in_v ? StagePlacement::v : schedule::schedule_of(schedule).placement;
  }
  return {static_cast<int>(pipeline), static_cast<int>(chunks), chosen};
}

Config Config::without_modules() const {
  Config c = *this;
  std::int64_t left = model.modules();
  for (auto stage = c.parallel.partition.rbegin(); stage != c.parallel.partition.rend(); ++stage) {
    const std::int64_t modules = std::min(left, *stage);
    *stage -= modules;
    left -= modules;
  }
  c.model.predicts = 1;
  c.model.predict_weight = ModelConfig().predict_weight;
  return c;
}

}  // namespace trireme::deck
