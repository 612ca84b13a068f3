// The parameters of rotary positions from the deck's keys. f is a frequency in radians per token,
// and a wavelength 2π/f.
#include <trireme/model/rotary_frequencies.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::model {
namespace {

using deck::ModelConfig;

constexpr double two_pi = 2 * std::numbers::pi;

/// The base with which the longest wavelength fits samples that are longer than the original ones.
double dynamic_theta(const ModelConfig& m) {
  const auto size = static_cast<double>(m.head_size());
  const double ratio = static_cast<double>(std::max(m.sequence, m.rope_original_sequence)) /
                       static_cast<double>(m.rope_original_sequence);
  return m.rope_theta * std::pow(m.rope_factor * ratio - (m.rope_factor - 1), size / (size - 2));
}

/// The pair of elements, as a real number, that turns `turns` times within the original sequence.
double pair_of(double turns, const ModelConfig& m) {
  const auto original = static_cast<double>(m.rope_original_sequence);
  return static_cast<double>(m.head_size()) * std::log(original / (turns * two_pi)) /
         (2 * std::log(m.rope_theta));
}

/// Pairs up to `first` keep their frequency, and those from `last` on have it divided by the factor
/// (section 3.2 of the paper, with whole pairs as in its program).
kernels::RotaryScaling yarn(const ModelConfig& m) {
  kernels::RotaryScaling s;
  s.factor = m.rope_factor;
  const double first = std::max(std::floor(pair_of(m.rope_beta_fast, m)), 0.0);
  double last =
      std::min(std::ceil(pair_of(m.rope_beta_slow, m)), static_cast<double>(m.head_size() - 1));
  if (last == first) last += 0.001;
  s.start = -first / (last - first);
  s.per_pair = 1 / (last - first);
  s.magnitude =
      m.rope_attention_factor > 0 ? m.rope_attention_factor : 0.1 * std::log(m.rope_factor) + 1;
  return s;
}

/// Wavelengths above original / low have their frequency divided by the factor, those below
/// original / high keep it.
kernels::RotaryScaling llama3(const ModelConfig& m) {
  const double low = m.rope_low_frequency_factor;
  const double width = m.rope_high_frequency_factor - low;
  const auto original = static_cast<double>(m.rope_original_sequence);
  return {m.rope_factor, 1 + low / width, 0, -original / (two_pi * width)};
}

}  // namespace

void set_frequencies(kernels::Rotary& rotary, const ModelConfig& m, std::int64_t layer) {
  rotary.head_size = m.head_size();
  if (m.window_rope_theta > 0 && m.window_of(layer) > 0) {
    rotary.theta = m.window_rope_theta;
    return;
  }
  rotary.theta = m.rope_theta;
  switch (m.rope_scaling) {
    case RotaryScalingKind::none:
      break;
    case RotaryScalingKind::linear:
      rotary.scaling = {m.rope_factor, 1};
      break;
    case RotaryScalingKind::dynamic:
      rotary.theta = dynamic_theta(m);
      break;
    case RotaryScalingKind::yarn:
      rotary.scaling = yarn(m);
      break;
    case RotaryScalingKind::llama3:
      rotary.scaling = llama3(m);
      break;
  }
}

}  // namespace trireme::model
