#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/model/parameters.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

/// The small GPT of tests/golden/gpt_fp64/make.py: weights and tokens from integer formulas.
namespace trireme::testing {

inline constexpr std::int64_t golden_batch = 4;

inline deck::ModelConfig golden_model() {
  deck::ModelConfig m;
  m.layers = 2;
  m.hidden = 24;
  m.heads = 3;
  m.feed_forward = 96;
  m.sequence = 13;
  m.vocabulary = 61;
  m.tied_embeddings = true;
  return m;
}

inline double golden_weight(std::int64_t number, const std::string& name, std::int64_t element) {
  const auto hashed =
      static_cast<std::uint64_t>((element + 1) * 2654435761 + (number + 1) * 40503 * 65537) &
      0xffffffffu;
  const double value = (static_cast<double>(hashed) / 4294967296.0 - 0.5) * 0.4;
  return name.ends_with("gain") ? 1 + value : value;
}

inline std::int32_t golden_token(std::int64_t step, std::int64_t b, std::int64_t s) {
  return static_cast<std::int32_t>((step * 7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) %
                                   61);
}

/// Host back ends only: writes through the views.
template <class P>
void set_golden_weights(const model::Parameters<P>& parameters) {
  for (const auto& entry : parameters.entries())
    for (std::int64_t i = 0; i < entry.weight.elements(); ++i)
      entry.weight.data(static_cast<std::size_t>(i)) =
          static_cast<typename P::Compute>(golden_weight(entry.number, entry.spec->name, i));
}

inline std::vector<double> read_doubles(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  check(in.good(), "cannot open ", path);
  std::vector<double> values(static_cast<std::size_t>(in.tellg()) / sizeof(double));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(values.size() * sizeof(double)));
  return values;
}

}  // namespace trireme::testing
