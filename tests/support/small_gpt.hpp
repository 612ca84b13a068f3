#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/model/rank_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "support/device_access.hpp"

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

/// Values in -1/2 … 1/2: factors of the elements in a checksum of a gradient.
inline double golden_noise(std::int64_t i) {
  return static_cast<double>(static_cast<std::uint64_t>((i + 7) * 2246822519) & 0xffffffffu) /
             4294967296.0 -
         0.5;
}

inline std::int32_t golden_token(std::int64_t step, std::int64_t b, std::int64_t s) {
  return static_cast<std::int32_t>((step * 7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) %
                                   61);
}

/// The whole model as one stage on one rank.
template <class P>
class WholeModel {
 public:
  using Shape = typename model::RankModel<P>::Shape;
  using BlockDone = typename model::RankModel<P>::BlockDone;

  WholeModel(const architecture::Architecture& architecture, const model::Parameters<P>& parameters,
             const Shape& shape)
      : axis_(shape.micro * architecture.model.sequence,
              shape.micro * architecture.model.encoder.sequence),
        model_(architecture, parameters, axis_, shape) {}

  View1<std::int32_t> field(int slot, std::string_view name) const {
    return model_.field(0, slot, model_.objective().field(name));
  }
  View1<std::int32_t> tokens(int slot) const { return field(slot, "tokens"); }
  View1<std::int32_t> targets(int slot) const { return field(slot, "targets"); }
  /// Σ cross entropy of tokens, or of a term of the objective.
  View1<double> loss() const { return loss(0); }
  View1<double> loss(std::size_t term) const {
    return View1<double>(model_.losses().data() + term, 1);
  }
  void zero_loss(const kernels::Handle& handle) const { model_.zero_losses(handle); }
  void forward(const kernels::Handle& handle, int slot, const model::MicroContext& c) const {
    model_.forward(handle, 0, slot, c);
  }
  void evaluate(const kernels::Handle& handle, int slot, const model::MicroContext& c,
                std::int64_t samples) const {
    model_.evaluate(handle, 0, slot, c, samples);
  }
  void backward(const kernels::Handle& handle, int slot, const model::MicroContext& c,
                const BlockDone& done) const {
    model_.backward(handle, 0, slot, c, done);
  }
  void backward_input(const kernels::Handle& handle, int slot, const model::MicroContext& c) const {
    model_.backward_input(handle, 0, slot, c);
  }
  void backward_weight(const kernels::Handle& handle, int slot, const model::MicroContext& c,
                       const BlockDone& done) const {
    model_.backward_weight(handle, 0, slot, c, done);
  }
  const model::RankModel<P>& rank_model() const { return model_; }

 private:
  model::TensorAxis axis_;
  model::RankModel<P> model_;
};

template <class P>
void set_golden_weights(const model::Parameters<P>& parameters) {
  for (const auto& entry : parameters.entries()) {
    std::vector<typename P::Compute> values;
    for (std::int64_t i = 0; i < entry.weight.elements(); ++i)
      values.push_back(
          static_cast<typename P::Compute>(golden_weight(entry.number(), entry.spec->name, i)));
    set_values(entry.weight.data, values);
  }
}

/// Copies the tokens and targets of `samples` samples of a step's batch into slot 0.
template <class P>
void set_golden_tokens(const WholeModel<P>& stage, std::int64_t step, std::int64_t samples,
                       std::int64_t first) {
  std::vector<std::int32_t> tokens = values_of(stage.tokens(0));
  std::vector<std::int32_t> targets = values_of(stage.targets(0));
  const std::int64_t sequence = golden_model().sequence;
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t s = 0; s < sequence; ++s) {
      const auto at = static_cast<std::size_t>(b * sequence + s);
      tokens[at] = golden_token(step, first + b, s);
      targets[at] = golden_token(step, first + b, s + 1);
    }
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), targets);
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
